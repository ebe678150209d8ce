package main

// #include "lp_quick.h"
// #include <stddef.h>
// enum {
//   quick_memory = offsetof(struct lp_quick, memory),
//   quick_ranks = offsetof(struct lp_quick, ranks),
//   quick_rank = offsetof(struct lp_quick, rank),
//   quick_per_rank = offsetof(struct lp_quick, per_rank),
//   quick_inline_at = offsetof(struct lp_quick, inline_at),
//   quick_data_at = offsetof(struct lp_quick, data_at),
//   quick_spin_long = offsetof(struct lp_quick, spin_long),
//   quick_spin_short = offsetof(struct lp_quick, spin_short),
//   quick_yields = offsetof(struct lp_quick, yields),
//   quick_vain = offsetof(struct lp_quick, vain),
//   quick_waits = offsetof(struct lp_quick, waits),
//   quick_begun = offsetof(struct lp_quick, begun),
//   quick_timed = offsetof(struct lp_quick, timed),
//   quick_costs_at = offsetof(struct lp_quick, costs_at),
//   quick_rings = offsetof(struct lp_quick, rings),
//   quick_seq = offsetof(struct lp_quick, seq),
//   quick_chain = offsetof(struct lp_quick, chain),
//   quick_used = offsetof(struct lp_quick, used),
//   quick_last = offsetof(struct lp_quick, last),
//   quick_recipes = offsetof(struct lp_quick, recipes),
//   quick_index = offsetof(struct lp_quick, index),
//   quick_index_mask = offsetof(struct lp_quick, index_mask),
//   quick_ended = offsetof(struct lp_quick, ended),
//   quick_log = offsetof(struct lp_quick, log),
//   quick_log_mask = offsetof(struct lp_quick, log_mask),
//   quick_head = offsetof(struct lp_quick, head),
//   quick_calls = offsetof(struct lp_quick, calls),
//   quick_bells = offsetof(struct lp_quick, bells),
//   ring_next = offsetof(struct lp_quick_ring, next),
//   ring_free = offsetof(struct lp_quick_ring, free),
//   ring_mask = offsetof(struct lp_quick_ring, mask),
//   ring_report = offsetof(struct lp_quick_ring, report),
//   ring_at = offsetof(struct lp_quick_ring, at),
//   ring_slot = offsetof(struct lp_quick_ring, slot),
//   ring_counter = offsetof(struct lp_quick_ring, counter),
//   ring_size = sizeof(struct lp_quick_ring),
//   costs_size = sizeof(struct lp_costs),
//   costs_choice = offsetof(struct lp_costs, choice),
//   recipe_kind = offsetof(struct lp_quick_recipe, kind),
//   recipe_type = offsetof(struct lp_quick_recipe, type),
//   recipe_op = offsetof(struct lp_quick_recipe, op),
//   recipe_peer = offsetof(struct lp_quick_recipe, peer),
//   recipe_count = offsetof(struct lp_quick_recipe, count),
//   recipe_send_bytes = offsetof(struct lp_quick_recipe, send_bytes),
//   recipe_recv_bytes = offsetof(struct lp_quick_recipe, recv_bytes),
//   recipe_shift = offsetof(struct lp_quick_recipe, shift),
//   recipe_in_place = offsetof(struct lp_quick_recipe, in_place),
//   recipe_sig = offsetof(struct lp_quick_recipe, sig),
//   recipe_block = offsetof(struct lp_quick_recipe, block),
//   recipe_keep_recv = offsetof(struct lp_quick_recipe, keep_recv),
//   recipe_keep_send = offsetof(struct lp_quick_recipe, keep_send),
//   recipe_stride = offsetof(struct lp_quick_recipe, stride),
//   recipe_piece = offsetof(struct lp_quick_recipe, piece),
//   recipe_from = offsetof(struct lp_quick_recipe, from),
//   recipe_ring = offsetof(struct lp_quick_recipe, ring),
//   recipe_is_inline = offsetof(struct lp_quick_recipe, is_inline),
//   recipe_lay = offsetof(struct lp_quick_recipe, lay),
//   recipe_take = offsetof(struct lp_quick_recipe, take),
//   recipe_keep = offsetof(struct lp_quick_recipe, keep),
//   recipe_own_input = offsetof(struct lp_quick_recipe, own_input),
//   recipe_combine = offsetof(struct lp_quick_recipe, combine),
//   recipe_scales = offsetof(struct lp_quick_recipe, scales),
//   recipe_cost_class = offsetof(struct lp_quick_recipe, cost_class),
//   recipe_divides = offsetof(struct lp_quick_recipe, divides),
//   recipe_ended = offsetof(struct lp_quick_recipe, ended),
//   recipe_factor = offsetof(struct lp_quick_recipe, factor),
//   recipe_factor_at = offsetof(struct lp_quick_recipe, factor_at),
//   recipe_size = sizeof(struct lp_quick_recipe),
//   record_seq = offsetof(struct lp_quick_record, seq),
//   record_recipe = offsetof(struct lp_quick_record, recipe),
//   record_done = offsetof(struct lp_quick_record, done),
//   record_begin = offsetof(struct lp_quick_record, begin),
//   record_end = offsetof(struct lp_quick_record, end),
//   record_size = sizeof(struct lp_quick_record),
//   gate_word = offsetof(struct lp_gate, word),
//   gate_quick = offsetof(struct lp_gate, quick),
//   gate_shut = offsetof(struct lp_gate, shut),
//   gate_owner = offsetof(struct lp_gate, owner),
//   gate_size = sizeof(struct lp_gate),
// };
import "C"

import (
	"unsafe"

	"lightpath/collectives/sharedmem"
	"lightpath/shim"
	"lightpath/shim/calls"
)

// The structures of lp_quick.h as C and Go see them: every difference must be 0, or this does not compile.
var (
	quick  sharedmem.Quick
	ring   sharedmem.QuickRing
	recipe sharedmem.QuickRecipe
	record sharedmem.QuickRecord
	gate   shim.Gate
	costs  sharedmem.Costs
)

const (
	_ = -(sharedmem.QuickLarge ^ C.LP_RING_LARGE)
	_ = -(sharedmem.TrialEvery ^ C.LP_TRIAL_EVERY)
	_ = -(sharedmem.TrialAt ^ C.LP_TRIAL_AT)
	_ = -(sharedmem.TrialRun ^ C.LP_TRIAL_RUN)
	_ = -(sharedmem.CostBits ^ C.LP_COST_BITS)
	_ = -(unsafe.Sizeof(costs) ^ C.costs_size)
	_ = -(unsafe.Offsetof(costs.Choice) ^ C.costs_choice)
	_ = -(unsafe.Offsetof(quick.Memory) ^ C.quick_memory)
	_ = -(unsafe.Offsetof(quick.Ranks) ^ C.quick_ranks)
	_ = -(unsafe.Offsetof(quick.Rank) ^ C.quick_rank)
	_ = -(unsafe.Offsetof(quick.PerRank) ^ C.quick_per_rank)
	_ = -(unsafe.Offsetof(quick.Inline) ^ C.quick_inline_at)
	_ = -(unsafe.Offsetof(quick.Data) ^ C.quick_data_at)
	_ = -(unsafe.Offsetof(quick.SpinLong) ^ C.quick_spin_long)
	_ = -(unsafe.Offsetof(quick.SpinShort) ^ C.quick_spin_short)
	_ = -(unsafe.Offsetof(quick.Yields) ^ C.quick_yields)
	_ = -(unsafe.Offsetof(quick.Vain) ^ C.quick_vain)
	_ = -(unsafe.Offsetof(quick.Waits) ^ C.quick_waits)
	_ = -(unsafe.Offsetof(quick.Begun) ^ C.quick_begun)
	_ = -(unsafe.Offsetof(quick.Timed) ^ C.quick_timed)
	_ = -(unsafe.Offsetof(quick.Costs) ^ C.quick_costs_at)
	_ = -(unsafe.Offsetof(quick.Rings) ^ C.quick_rings)
	_ = -(unsafe.Offsetof(quick.Seq) ^ C.quick_seq)
	_ = -(unsafe.Offsetof(quick.Chain) ^ C.quick_chain)
	_ = -(unsafe.Offsetof(quick.Used) ^ C.quick_used)
	_ = -(unsafe.Offsetof(quick.Last) ^ C.quick_last)
	_ = -(unsafe.Offsetof(quick.Recipes) ^ C.quick_recipes)
	_ = -(unsafe.Offsetof(quick.Index) ^ C.quick_index)
	_ = -(unsafe.Offsetof(quick.IndexMask) ^ C.quick_index_mask)
	_ = -(unsafe.Offsetof(quick.Ended) ^ C.quick_ended)
	_ = -(unsafe.Offsetof(quick.Log) ^ C.quick_log)
	_ = -(unsafe.Offsetof(quick.LogMask) ^ C.quick_log_mask)
	_ = -(unsafe.Offsetof(quick.Head) ^ C.quick_head)
	_ = -(unsafe.Offsetof(quick.CallCounts) ^ C.quick_calls)
	_ = -(unsafe.Offsetof(quick.Bells) ^ C.quick_bells)
	_ = -(unsafe.Offsetof(ring.Next) ^ C.ring_next)
	_ = -(unsafe.Offsetof(ring.Free) ^ C.ring_free)
	_ = -(unsafe.Offsetof(ring.Mask) ^ C.ring_mask)
	_ = -(unsafe.Offsetof(ring.Report) ^ C.ring_report)
	_ = -(unsafe.Offsetof(ring.At) ^ C.ring_at)
	_ = -(unsafe.Offsetof(ring.Slot) ^ C.ring_slot)
	_ = -(unsafe.Offsetof(ring.Counter) ^ C.ring_counter)
	_ = -(unsafe.Sizeof(ring) ^ C.ring_size)
	_ = -(unsafe.Offsetof(recipe.Kind) ^ C.recipe_kind)
	_ = -(unsafe.Offsetof(recipe.Type) ^ C.recipe_type)
	_ = -(unsafe.Offsetof(recipe.Op) ^ C.recipe_op)
	_ = -(unsafe.Offsetof(recipe.Peer) ^ C.recipe_peer)
	_ = -(unsafe.Offsetof(recipe.Count) ^ C.recipe_count)
	_ = -(unsafe.Offsetof(recipe.SendBytes) ^ C.recipe_send_bytes)
	_ = -(unsafe.Offsetof(recipe.RecvBytes) ^ C.recipe_recv_bytes)
	_ = -(unsafe.Offsetof(recipe.Shift) ^ C.recipe_shift)
	_ = -(unsafe.Offsetof(recipe.InPlace) ^ C.recipe_in_place)
	_ = -(unsafe.Offsetof(recipe.Signature) ^ C.recipe_sig)
	_ = -(unsafe.Offsetof(recipe.Block) ^ C.recipe_block)
	_ = -(unsafe.Offsetof(recipe.KeepRecv) ^ C.recipe_keep_recv)
	_ = -(unsafe.Offsetof(recipe.KeepSend) ^ C.recipe_keep_send)
	_ = -(unsafe.Offsetof(recipe.Stride) ^ C.recipe_stride)
	_ = -(unsafe.Offsetof(recipe.Piece) ^ C.recipe_piece)
	_ = -(unsafe.Offsetof(recipe.From) ^ C.recipe_from)
	_ = -(unsafe.Offsetof(recipe.Ring) ^ C.recipe_ring)
	_ = -(unsafe.Offsetof(recipe.Inline) ^ C.recipe_is_inline)
	_ = -(unsafe.Offsetof(recipe.Lay) ^ C.recipe_lay)
	_ = -(unsafe.Offsetof(recipe.Take) ^ C.recipe_take)
	_ = -(unsafe.Offsetof(recipe.Keep) ^ C.recipe_keep)
	_ = -(unsafe.Offsetof(recipe.OwnInput) ^ C.recipe_own_input)
	_ = -(unsafe.Offsetof(recipe.Combine) ^ C.recipe_combine)
	_ = -(unsafe.Offsetof(recipe.Scales) ^ C.recipe_scales)
	_ = -(unsafe.Offsetof(recipe.CostClass) ^ C.recipe_cost_class)
	_ = -(unsafe.Offsetof(recipe.Divides) ^ C.recipe_divides)
	_ = -(unsafe.Offsetof(recipe.Ended) ^ C.recipe_ended)
	_ = -(unsafe.Offsetof(recipe.Factor) ^ C.recipe_factor)
	_ = -(unsafe.Offsetof(recipe.FactorAt) ^ C.recipe_factor_at)
	_ = -(unsafe.Sizeof(recipe) ^ C.recipe_size)
	_ = -(unsafe.Offsetof(record.Seq) ^ C.record_seq)
	_ = -(unsafe.Offsetof(record.Recipe) ^ C.record_recipe)
	_ = -(unsafe.Offsetof(record.Done) ^ C.record_done)
	_ = -(unsafe.Offsetof(record.Begin) ^ C.record_begin)
	_ = -(unsafe.Offsetof(record.End) ^ C.record_end)
	_ = -(unsafe.Sizeof(record) ^ C.record_size)
	_ = -(unsafe.Offsetof(gate.Word) ^ C.gate_word)
	_ = -(unsafe.Offsetof(gate.Quick) ^ C.gate_quick)
	_ = -(unsafe.Offsetof(gate.Shut) ^ C.gate_shut)
	_ = -(unsafe.Offsetof(gate.Owner) ^ C.gate_owner)
	_ = -(unsafe.Sizeof(gate) ^ C.gate_size)

	_ = -(C.LP_LAY_BLOCK ^ sharedmem.LayBlock)
	_ = -(C.LP_LAY_PIECES ^ sharedmem.LayPieces)
	_ = -(C.LP_TAKE_ONE ^ sharedmem.TakeOne)
	_ = -(C.LP_TAKE_EACH ^ sharedmem.TakeEach)
	_ = -(C.LP_TAKE_FOLD ^ sharedmem.TakeFold)
	_ = -(C.LP_QUICK_KINDS ^ sharedmem.QuickKinds)
	_ = -(C.LP_QUICK_USER ^ int(calls.OpPreMulSum))
	_ = -(C.LP_QUICK_RANKS ^ sharedmem.MaxRanks)
)
