"""Gradients -> weights: Muon for matrices, Adam for the rest."""

import jax
import jax.numpy as jnp
import numpy as np

tree_map = jax.tree_util.tree_map
leaves = jax.tree_util.tree_leaves


def orthogonal(gradient):
    """Newton-Schulz iteration towards the nearest orthogonal matrix (Muon)."""
    tall = gradient.shape[0] > gradient.shape[1]
    result = gradient.T if tall else gradient
    result = result / (jnp.linalg.norm(result) + 1e-7)
    for _ in range(5):
        square = result @ result.T
        result = 3.4445 * result + (-4.775 * square + 2.0315 * square @ square) @ result
    return result.T if tall else result


def muon(weight, gradient, first, second, rate):
    """One step for a matrix."""
    first = 0.95 * first + gradient
    scale = 0.02 * np.sqrt(max(1, weight.shape[0] / weight.shape[1]))
    step = rate * scale * orthogonal(gradient + 0.95 * first)
    return weight - step - rate * 0.0005 * weight, first, second


def adam(weight, gradient, first, second, rate, number):
    """One step for embeddings, vectors and adapters."""
    first = 0.9 * first + 0.1 * gradient
    second = 0.98 * second + 0.02 * gradient * gradient
    mean, spread = first / (1 - 0.9**number), second / (1 - 0.98**number)
    return weight - rate * 0.004 * mean / (jnp.sqrt(spread) + 1e-8), first, second


def make_step(loss_of, takes_muon):
    """A compiled training step: (weights, moments) of before to those of after, and the loss."""

    @jax.jit
    def step(weights, firsts, seconds, number, rate, batches):
        value, gradients = jax.value_and_grad(loss_of)(weights, batches)
        norm = jnp.sqrt(sum((leaf * leaf).sum() for leaf in leaves(gradients)))
        gradients = tree_map(lambda leaf: leaf * jnp.minimum(1, 1 / norm), gradients)
        _, structure = jax.tree_util.tree_flatten(weights)
        moved = [
            muon(*each, rate) if takes_muon(each[0]) else adam(*each, rate, number)
            for each in zip(leaves(weights), leaves(gradients), leaves(firsts), leaves(seconds))
        ]
        after = [jax.tree_util.tree_unflatten(structure, column) for column in zip(*moved)]
        return (*after, value)

    return step
