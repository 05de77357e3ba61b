"""Program + prompt -> tokens."""

from ticktrue.generate.session import Obtain, Session, Step

__all__ = ["Obtain", "Session", "Step"]
