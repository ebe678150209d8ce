"""Some of PyTorch's own tests of a backend, each group of features once; docs/torch.md says how to run all."""

import subprocess
import sys
import unittest

import ranks  # before the others: it says where they are

import pytorch_tests
import torch

CHOSEN = """
test_new_subgroups_by_enumeration_input_rank_exceeds_world_size test_barrier_timeout_full_group
test_all_reduce_coalesced_group_min test_sparse_all_reduce_sum test_reduce_group_product test_broadcast_group
test_all_gather_coalesced_with_empty test_gather_object_subgroup test_scatter_object_list test_all_to_all_group
test_all_to_all_single_unequal_split_full_group test_batch_isend_irecv_gloo_tags test_irecv
test_DistributedDataParallelCPU_grad_is_view test_accumulate_gradients_no_sync_allreduce_with_then_hook
test_ddp_hook_parity_allreduce test_ddp_grad_div_uneven_inputs test_ddp_static_graph_nested_types
test_ddp_model_diff_num_params_across_ranks test_periodic_model_averager test_coalescing_manager_async
test_batch_isend_irecv_self_nccl test_reduce_scatter_v_cuda
""".split()


class PyTorch(unittest.TestCase):
    def test_its_own_tests(self):
        ranks.require_library()
        if int(torch.__version__.split(".")[0]) < 2:
            self.skipTest(
                f"the tests that PyTorch {torch.__version__} contains want other names; those of PyTorch 2 run"
            )
        # In a process of their own: they change torch for the processes that they fork.
        command = [sys.executable, pytorch_tests.__file__, *CHOSEN]
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(result.returncode, 0, result.stdout)


if __name__ == "__main__":
    unittest.main()
