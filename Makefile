# Thin over pip and pytest: each target is the command a person would type, run in .venv.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo shell test check slow fuzz faults oldest docs dist clean

.venv/.installed-core: pyproject.toml  ## only what the library itself needs: about 430 MB
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --no-compile --editable .
	touch $@

.venv/.installed: .venv/.installed-core  ## what the tests need as well: about 2 GB
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

demo: .venv/.installed-core  ## the main job, end to end, on a log whose truth is known
	$(BIN)/unskew demo

shell: .venv/.installed-core  ## a shell in which `unskew` and `python` are those of .venv
	PATH="$(CURDIR)/$(BIN):$$PATH" VIRTUAL_ENV="$(CURDIR)/.venv" $${SHELL:-/bin/sh}

test: .venv/.installed  ## every test but the slow ones
	$(BIN)/python -m pytest -n auto --dist loadfile -m 'not slow'

check: .venv/.installed  ## lint, types, doctests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q --doctest-modules src --ignore=src/unskew/engines/gpu --ignore=docs/_extensions --doctest-glob='*.md' README.md docs

slow: .venv/.installed  ## minutes-long experiments
	$(BIN)/python -m pytest -m slow

fuzz: .venv/.installed  ## 100,000 public calls and 6,000 files with wrong values; prints a table
	PYTHONPATH=tests $(BIN)/python -m fuzz.run

faults: .venv/.installed  ## 100 kills of each kind of work, Ctrl-C in long work; prints tables
	PYTHONPATH=tests $(BIN)/python -m faults.run

oldest:  ## the tests with the oldest supported version of each dependency, in build/oldest
	$(PYTHON) -m venv --clear build/oldest
	$(PYTHON) tests/oldest.py > build/oldest/constraints.txt
	build/oldest/bin/python -m pip install --quiet --editable '.[all,oldest]' --constraint build/oldest/constraints.txt
	build/oldest/bin/python -m pytest -n auto --dist loadfile -m 'not slow' -p no:cacheprovider

.venv/.installed-docs: .venv/.installed
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	touch $@

docs: .venv/.installed-docs  ## the site, in build/site/html, checked; made from a copy, so that docs/ holds sources only
	rm -rf build/site
	mkdir -p build/site
	cp -R docs examples CHANGELOG.md build/site
	$(BIN)/sphinx-build -W --keep-going -q -b html build/site/docs build/site/html
	$(BIN)/python -m pytest -q tests/test_site.py

dist:  ## wheel and sdist in dist/, checked and tried in an empty environment; SBOM in build/sbom.json
	rm -rf dist build/tools build/empty
	$(PYTHON) -m venv build/tools && build/tools/bin/python -m pip install --quiet build twine cyclonedx-bom
	build/tools/bin/python -m build --outdir dist .
	build/tools/bin/python -m twine check --strict dist/*
	$(PYTHON) -m venv build/empty && build/empty/bin/python -m pip install --quiet dist/*.whl
	build/empty/bin/unskew demo
	build/tools/bin/cyclonedx-py environment build/empty --output-file build/sbom.json

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build/site
