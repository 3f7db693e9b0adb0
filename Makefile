# Each target works on a fresh machine: it makes the virtual environment when that is missing or out of date.
PYTHON ?= python3
VENV ?= .venv
CONSTRAINTS ?= constraints.txt
BIN := $(VENV)/bin

.PHONY: audit test test-integrations fuzz kills mutants lint format bench truth zoo fixtures readme docs dist clean

audit: $(VENV)/.ready   ## the main job: audit the shipped checkpoints against their recorded verdicts
	cd fixtures && ../$(BIN)/python -m pytest

test: $(VENV)/.ready    ## the test suite
	$(BIN)/python -m pytest -n auto --dist worksteal --timeout 900

test-integrations: $(VENV)/.integrations ## the callbacks in real training loops of other packages
	$(BIN)/python -m pytest tests/integrations

fuzz: $(VENV)/.ready    ## 5,000 damaged or forged checkpoints and 2,000 other files, up to an hour; goes on where it was stopped
	cd tests && ../$(BIN)/python -m fuzz

kills: $(VENV)/.ready   ## workers killed and runs told to stop at random moments, up to 90 minutes; goes on where it was stopped
	$(BIN)/python tests/workers/random_table.py

mutants: $(VENV)/.ready ## which small changes of the judge no test notices; an hour for all 3,700 of them
	$(BIN)/python tests/mutants.py

lint: $(VENV)/.ready    ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.ready  ## rewrite the sources in the project's format
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: $(VENV)/.ready   ## ratios against bare loops, side by side
	$(BIN)/python benchmarks/measure.py
	$(BIN)/python benchmarks/depth.py
	$(BIN)/python benchmarks/audit.py
	$(BIN)/python benchmarks/credit.py cost random
	$(BIN)/python benchmarks/recorder.py
	$(BIN)/python benchmarks/xdist.py
	$(BIN)/python benchmarks/scale.py

zoo: $(VENV)-zoo/.ready ## the stream of 247 architectures of other packages and by hand, against what was written down; 3 minutes
	$(VENV)-zoo/bin/python -m benchmarks.zoo

truth: $(VENV)/.ready   ## the audit against 150 networks whose verdict is known; needs Debian's dataset-fashion-mnist
	$(BIN)/python -m benchmarks.truth

fixtures: $(VENV)/.ready ## train the shipped checkpoints again (about an hour)
	$(BIN)/python fixtures/build.py

readme: $(VENV)/.ready  ## renew what is written from the code: the schema, and the parts of the README and the docs
	$(BIN)/python -m pytest_fadiag.show.schema
	$(BIN)/python .ci/readme.py

docs: $(VENV)/.docs     ## the documentation as pages, build/site; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir build/site

dist: $(VENV)/.ready    ## build and check what is released
	rm -rf dist && $(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) --editable '.[dev,release]'
	$(BIN)/python -m build && $(BIN)/twine check --strict dist/* && $(BIN)/check-wheel-contents dist/*.whl

clean:                  ## remove what the other targets made
	rm -rf $(VENV) $(VENV)-zoo build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis benchmarks/truth/made

$(VENV)-zoo/.ready: pyproject.toml $(CONSTRAINTS) # an environment of its own: none of these packages is a dependency
	$(PYTHON) -m venv $(VENV)-zoo
	$(VENV)-zoo/bin/python -m pip install --quiet --constraint $(CONSTRAINTS) --editable . torchvision timm transformers
	$(VENV)-zoo/bin/python -m pip install --quiet --no-deps biotorch
	touch $@

$(VENV)/.integrations: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) --editable '.[dev,integrations]'
	touch $@

$(VENV)/.docs: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) --editable '.[dev,docs]'
	touch $@

$(VENV)/.ready: pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) --editable '.[dev]'
	touch $@
