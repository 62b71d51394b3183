"""Which buffers of a fused kernel hold what was computed."""

from types import SimpleNamespace

from torch._inductor.virtualized import V

from syncpoint.runtimes.inductor.codegen_hooks import _find_filled_buffers


def test_a_buffer_that_lives_in_its_kernel_alone_is_not_shown():
    args = SimpleNamespace(live_output_buffers=lambda: ["buf1", "buf2", "buf3"])
    graph = SimpleNamespace(removed_buffers={"buf1"}, inplaced_to_remove={"buf2"})
    with V.set_graph_handler(graph):
        assert _find_filled_buffers(args) == ["buf3"]
