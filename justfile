# Short names for what CONTRIBUTING.md and .ci/run do.

default: check

# lint, types, layers, and the whole pipeline on a tiny model
check:
    ruff check .
    ruff format --check .
    mypy
    lint-imports
    pytest -q tests/test_tiny.py tests/test_architecture.py

fix:
    ruff check --fix .
    ruff format .

test:
    pytest

slow:
    pytest -m "slow and not torch"

# the violations page, from verify/codes.py
docs:
    python -c "from ticktrue.verify import reference_page; print(reference_page(), end='')" > docs/reference/violations.md

ci:
    .ci/run
