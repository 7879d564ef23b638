"""Calls what most tests call, so that its machine code is on disk before several processes want it at once."""

import numpy as np

import kernelcoreset as kc

points = np.random.default_rng(0).normal(size=(300, 2))
for kernel in (kc.Gaussian(sigma=1.0), kc.Polynomial(degree=2)):
    coreset = kc.build_coreset(points, 3, kernel, 50)
    kc.empirical_error(points, coreset, 3, kernel, n_center_sets=2)
    model = kc.KernelKMeans(n_clusters=3, kernel=kernel, coreset_size=50).fit(points)
    model.predict(points)
tree = kc.CoresetTree(3, kc.Gaussian(sigma=1.0), 50)
tree.add(points)
tree.result(50)
