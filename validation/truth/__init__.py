"""Networks whose verdict is written down before they are measured, and what the audit says of them.

python -m validation.truth                 train what is missing, audit everything, print the tables
python -m validation.truth --only 'vit*'   a part of it

The suite trains and audits a slice of them (``slice.py``, tests/truth).
"""
