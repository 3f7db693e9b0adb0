# Each target works on a fresh machine: it makes the virtual environment when that is missing or out of date.
PYTHON ?= python3
VENV ?= .venv
CONSTRAINTS ?= constraints.txt
BIN := $(VENV)/bin

.PHONY: test audit lint format test-integrations fuzz bench zoo truth coverage tasks fixtures hero options docs dist clean

test: $(VENV)/.ready    ## the test suite
	$(BIN)/python -m pytest -n auto --dist worksteal --timeout 900

audit: $(VENV)/.ready   ## the 21 shipped checkpoints, against their recorded verdicts and numbers
	cd fixtures && ../$(BIN)/python -m pytest
	$(BIN)/python -m pytest tests/test_shipped.py -m "slow or not slow"

lint: $(VENV)/.ready    ## style, types, and the mistakes that this package looks for in others
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/fadiag lint pytest_fadiag examples

format: $(VENV)/.ready  ## rewrite the sources in the project's format
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

test-integrations: $(VENV)/.integrations ## the callbacks in real training loops of other packages, and the examples of other tasks
	$(BIN)/python -m pytest tests/integrations -m "slow or not slow"

fuzz: $(VENV)/.ready    ## thousands of damaged checkpoints, data, logs, traces, certificates and cache entries, an hour
	FADIAG_EXAMPLES=5000 $(BIN)/python -m pytest -m fuzz --timeout 7200

bench: $(VENV)/.ready   ## ratios against bare loops, side by side
	$(BIN)/python benchmarks/measure.py
	$(BIN)/python benchmarks/depth.py
	$(BIN)/python benchmarks/audit.py
	$(BIN)/python -m benchmarks.credit cost random
	$(BIN)/python benchmarks/recorder.py
	$(BIN)/python benchmarks/xdist.py
	$(BIN)/python benchmarks/checkpoints.py
	$(BIN)/python benchmarks/scale.py

zoo: $(VENV)-zoo/.ready ## stream detection on 429 networks, about two minutes on one core
	$(VENV)-zoo/bin/python -m validation.zoo

truth: $(VENV)/.ready   ## error rates on 226 labelled cases; needs Debian's dataset-fashion-mnist
	$(BIN)/python -m validation.truth

coverage: $(VENV)/.ready ## how often the intervals of (d) and (e) hold the truth, ten minutes
	$(BIN)/python validation/intervals.py

tasks: $(VENV)/.ready   ## regression and language models by BP, DFA and frozen blocks, seven minutes; needs dataset-fashion-mnist
	$(BIN)/python validation/tasks.py

fixtures: $(VENV)/.ready ## train the shipped checkpoints again, about an hour
	$(BIN)/python fixtures/build.py

hero: $(VENV)/.ready     ## the pictures of README and docs, from the shipped checkpoints; about a minute
	-cd fixtures && ../$(BIN)/python -m pytest -q -o fa_expect= --fa-report=figures:../build/figures --fa-report=json:../build/audit.json
	cp build/figures/hero.png build/figures/hero-dark.png docs/
	$(BIN)/python .ci/pictures.py build/audit.json
	-$(BIN)/fadiag audit fixtures/checkpoints/bp_s42.pt fixtures/checkpoints/dfa_s42.pt --data fashion-mnist:fixtures/fashion-mnist \
	  --frozen 'fixtures/checkpoints/frozen_*_s42.pt' --report html:docs/sample.html

options: $(VENV)/.ready ## write the pages of options and diagnostics, and llms.txt, from the package
	$(BIN)/python .ci/options.py
	$(BIN)/python .ci/pages.py

docs: $(VENV)/.docs     ## the documentation as pages in build/site; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir build/site

dist: $(VENV)/.ready    ## build and check what is released
	rm -rf dist && $(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) --editable '.[dev,release]'
	$(BIN)/python -m build && $(BIN)/twine check --strict dist/* && $(BIN)/check-wheel-contents dist/*.whl

clean:                  ## remove what the other targets made
	rm -rf $(VENV) $(VENV)-zoo build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis validation/truth/made

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
