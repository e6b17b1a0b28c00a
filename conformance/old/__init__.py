"""The conformance suite: documented behaviours of tf.distribute, each a small program with its expected value or error.

    python -m refdist.conformance.old --adapter package.module:Class

Programs are data (`language.py`), so that an implementation in any language can run them.
"""
