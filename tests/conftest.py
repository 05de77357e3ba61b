"""Settings of all tests. Hypothesis has no deadline: the first example of a kernel includes its compilation."""

from hypothesis import settings

settings.register_profile("ticktrue", deadline=None)
settings.load_profile("ticktrue")
