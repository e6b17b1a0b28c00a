"""The specification of tf.distribute that is also a test suite: chapters that people read and implementations run.

    python -m refdist.conformance --adapter package.module:Class
"""
