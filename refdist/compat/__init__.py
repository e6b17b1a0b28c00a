"""Names as older versions of TensorFlow had them; `import refdist.compat.v1.distribute`."""
