"""A program's own tests, with `tf.test.TestCase`; each assertion is seen to fail, too."""

import numpy as np
import tensorflow as tf


class Linear(tf.Module):
    def __init__(self, n, name=None):
        super().__init__(name=name)
        self.w = tf.Variable(tf.ones([n, 1]), name="w")

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32)])
    def __call__(self, x):
        return tf.matmul(x, self.w)


class StrategyTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.strategy = tf.distribute.MirroredStrategy()

    def test_replicas(self):
        self.assertGreaterEqual(self.strategy.num_replicas_in_sync, 1)
        total = self.strategy.reduce(tf.distribute.ReduceOp.SUM, self.strategy.run(lambda: tf.constant(1.0)), axis=None)
        self.assertAllEqual(total, float(self.strategy.num_replicas_in_sync))

    def test_linear(self):
        with self.strategy.scope():
            m = Linear(3)
        out = m(tf.constant([[1.0, 2.0, 3.0]]))
        self.assertAllClose(m.w, tf.ones([3, 1]))
        self.assertAllEqual(tf.constant(["a"]), [b"a"])
        self.assertAllClose(out, [[6.0]])
        self.assertEqual(out.shape, (1, 1))
        self.assertAllClose({"a": out, "b": [np.ones(2)]}, {"a": [[6.0]], "b": [[1.0, 1.0]]})
        self.assertNotAllClose(out, [[7.0]])
        self.assertAllGreater(out, 5.0)
        self.assertAllLess(out, 7.0)
        self.assertShapeEqual(np.zeros((1, 1), np.float32), out)
        self.assertDTypeEqual(out, np.float32)
        self.assertAllInRange(out, 5.0, 6.0)
        self.assertNear(float(out[0, 0]), 6.0, 1e-6)
        self.assertLen([1, 2], 2)
        self.assertEmpty([])
        self.assertNotEmpty([1])
        self.assertAllInSet(tf.constant([1, 2]), {1, 2})

    def test_errors(self):
        with self.assertRaises((ValueError, tf.errors.InvalidArgumentError)):
            tf.matmul(tf.ones([2, 3]), tf.ones([2, 3]))

    def test_failures(self):
        x = tf.constant([1.0, 2.0])
        for wrong in (lambda: self.assertAllClose(x, [1.0, 2.1]), lambda: self.assertAllClose({"a": x}, {"b": x}),
                      lambda: self.assertAllClose([x, x[:1]], [x, x]), lambda: self.assertAllEqual([1, 2], [1, 3]),
                      lambda: self.assertAllEqual([1, 2], [[1, 2]]), lambda: self.assertNotAllEqual(x, x),
                      lambda: self.assertNotAllClose(x, x), lambda: self.assertAllGreater(x, 1.0),
                      lambda: self.assertAllLess(x, 2.0), lambda: self.assertAllGreaterEqual(x, 1.5),
                      lambda: self.assertAllLessEqual(x, 1.5), lambda: self.assertAllInRange(x, 1.0, 1.5),
                      lambda: self.assertAllInRange(x, 1.0, 2.0, open_lower_bound=True),
                      lambda: self.assertAllInSet(x, {1.0}), lambda: self.assertNear(1.0, 2.0, 0.5),
                      lambda: self.assertArrayNear([1.0], [2.0], 0.5), lambda: self.assertDTypeEqual(x, np.float64),
                      lambda: self.assertNDArrayNear(np.ones(2), np.zeros(2), 0.5),
                      lambda: self.assertShapeEqual(np.zeros(3), x)):
            with self.assertRaises(AssertionError):
                wrong()
        with self.assertRaises(AssertionError), self.assertRaisesWithPredicateMatch(ValueError, "no such text"):
            raise ValueError("a text")
        with self.assertRaisesWithPredicateMatch(ValueError, "a t"):
            raise ValueError("a text")
        print("failures fail")

    def test_session_and_tmp(self):
        path = self.get_temp_dir()
        self.assertTrue(tf.io.gfile.exists(path))
        with self.cached_session():
            self.assertAllEqual(self.evaluate(tf.constant([1, 2])), [1, 2])
        self.assertStartsWith("abc", "ab")
        with self.subTest("half"):
            self.assertAllCloseAccordingToType(tf.constant([1.0], tf.float16), [1.0005])


if __name__ == "__main__":
    try:
        tf.test.main()
    except SystemExit as end:
        print("exit", end.code)
