"""jraph's networks on small graphs."""

from __future__ import annotations

from tests.jax.against_common import choose, told

choose()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import jraph  # noqa: E402
import numpy as np  # noqa: E402

RNG = np.random.default_rng(1)


def drawn(*shape):
    return jnp.asarray(RNG.normal(size=shape).astype(np.float32))


GRAPH = jraph.GraphsTuple(
    n_node=jnp.asarray([3, 2]), n_edge=jnp.asarray([4, 2]), nodes=drawn(5, 4), edges=drawn(6, 3),
    globals=drawn(2, 2), senders=jnp.asarray([0, 1, 2, 0, 3, 4]),
    receivers=jnp.asarray([1, 2, 0, 2, 4, 3]),
)  # fmt: skip
W = {
    "edge": drawn(3 + 4 + 4 + 2, 5),
    "node": drawn(4 + 5 + 5 + 2, 4),
    "globals": drawn(4 + 5 + 2, 2),
    "gcn": drawn(4, 4),
}


def network(w):
    def edge(e, s, r, g):
        return jax.nn.relu(jnp.concatenate([e, s, r, g], axis=1) @ w["edge"])

    def node(n, s, r, g):
        return jnp.tanh(jnp.concatenate([n, s, r, g], axis=1) @ w["node"])

    def whole(n, e, g):
        return jnp.concatenate([n, e, g], axis=1) @ w["globals"]

    return jraph.GraphNetwork(edge, node, whole)


def total(w):
    made = network(w)(GRAPH)
    return jnp.sum(made.nodes**2) + jnp.sum(made.globals)


def convolved():
    plain = GRAPH._replace(edges=None, globals=None)
    return jraph.GraphConvolution(lambda n: n @ W["gcn"], add_self_edges=True)(plain).nodes


def attention():
    def query(n):
        return n @ W["gcn"]

    def logits(s, r, e):
        return jnp.sum(s * r, axis=-1, keepdims=True)

    plain = GRAPH._replace(globals=None)
    return jraph.GAT(query, logits, None)(plain).nodes


SEGMENTS = jnp.asarray([0, 0, 1, 1, 1, 2])
interaction = jraph.InteractionNetwork(
    lambda e, s, r: jnp.concatenate([e, s, r], 1), lambda n, r: jnp.concatenate([n, r], 1)
)
PARTS = {
    "GraphNetwork": lambda: network(W)(GRAPH),
    "jitted": lambda: jax.jit(lambda w, g: network(w)(g).nodes)(W, GRAPH),
    "gradient": lambda: jax.grad(total)(W),
    "GCN": convolved,
    "GAT": attention,
    "batch": lambda: jraph.batch([GRAPH, GRAPH]).senders,
    "unbatch": lambda: [g.nodes for g in jraph.unbatch(GRAPH)],
    "pad": lambda: jraph.pad_with_graphs(GRAPH, 8, 10, 4).nodes,
    "masks": lambda: jraph.get_node_padding_mask(jraph.pad_with_graphs(GRAPH, 8, 10, 4)),
    "segment_softmax": lambda: jraph.segment_softmax(drawn(6), SEGMENTS, 3),
    "segment_mean": lambda: jraph.segment_mean(drawn(6, 2), SEGMENTS, 4),
    "segment_max": lambda: jraph.segment_max_or_constant(drawn(6), SEGMENTS, 4),
    "InteractionNetwork": lambda: interaction(GRAPH._replace(globals=None)).nodes,
}

if __name__ == "__main__":
    told(PARTS)
