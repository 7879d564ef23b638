"""Saves a coreset and models in place of others, is killed at every write in turn, and looks at what is left.

Run by test_saves; the way of dying is that of store_script.
"""

import json
import shutil
import signal
import sys
from pathlib import Path

import numpy as np

import kernelcoreset as kc
from kernelcoreset.files import atomic
from tests.faults.store_script import Death, in_a_fork

KERNEL = kc.Gaussian(sigma=1.0)


def coreset(seed):
    return kc.build_coreset(np.random.default_rng(seed).normal(size=(80, 2)), 2, KERNEL, 20, seed=seed)


def model(seed):
    return kc.KernelKMeansModel.fit_coreset(coreset(seed), 2, KERNEL, n_init=1, seed=seed)


def points_of_coreset(path):
    return kc.Coreset.read_parquet(path).points.tolist()


def points_of_model(path):
    return kc.KernelKMeansModel.load(path).coreset.points.tolist()


def spectral(seed):
    points = np.random.default_rng(seed).normal(size=(80, 2))
    return kc.SpectralClustering(2, coreset_size=20, random_state=seed).fit(points)


def labels_of_spectral(path):
    return kc.SpectralClustering.load(path).model_.coreset.points.tolist()


KINDS = {
    "coreset": (coreset, lambda found, path: found.write_parquet(path), points_of_coreset),
    "model": (model, lambda found, path: found.save(path, overwrite=True), points_of_model),
    "spectral": (spectral, lambda found, path: found.save(path, overwrite=True), labels_of_spectral),
}


def what_is_left(path, read):
    """What a reader finds, or what the next writer would put back."""
    if not path.exists():
        path = next(path.parent.glob(f".{path.name}.*.old"))
    return read(path)


def arm(path, step, *, has_exchange):
    """Die at a step below the folder of `path`. The exchange of two names is no event of Python's."""
    death = Death(path.parent, step)
    death.arm()
    exchange = atomic._exchange

    def stepping(*folders):
        death.step()
        done = exchange(*folders)
        death.step()
        return done

    atomic._exchange = stepping if has_exchange else lambda *_: False


def main():
    folder = Path(sys.argv[1])
    found = {}
    for kind, (make, save, read) in KINDS.items():
        old, new = make(1), make(2)
        for has_exchange in (True, False):
            steps, wrong, ended = 0, [], -signal.SIGKILL
            while ended == -signal.SIGKILL:
                steps += 1
                path = folder / f"{kind}-{has_exchange}-{steps}" / "kept"
                path.parent.mkdir()
                save(old, path)
                before = read(path)

                def life(path=path, step=steps, new=new, save=save, has_exchange=has_exchange):
                    arm(path, step, has_exchange=has_exchange)
                    save(new, path)

                ended = in_a_fork(life)
                left = what_is_left(path, read)
                save(new, path)  # what was left is in nobody's way
                after = read(path)
                if ended not in (0, -signal.SIGKILL) or (ended == 0 and left != after):
                    wrong.append(f"step {steps}: ended with {ended}")
                if left not in (before, after) or before == after:
                    wrong.append(f"step {steps}: neither the old nor the new")
                shutil.rmtree(path.parent)
            found[f"{kind}, {'exchange' if has_exchange else 'renames'}"] = {"steps": steps - 1, "wrong": wrong}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
