// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "attention/cuda/device_step.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "attention/check_step.h"
#include "quest/error.h"
#include "selection/group_selection.h"

namespace quest::cuda {

namespace {

constexpr std::int64_t kScoreFloats = std::int64_t{64} << 20;

[[noreturn]] void refuse(const std::string& fault) { throw InvalidArgument("CUDA: " + fault); }

std::int32_t clamped(std::int64_t pages) {
  return static_cast<std::int32_t>(
      std::min<std::int64_t>(pages, std::numeric_limits<std::int32_t>::max()));
}

}  // namespace

DeviceStep::DeviceStep(KvCache& cache, Device& device, const Tuning& tuning)
    : cache_(cache),
      device_(device),
      tuning_(tuning),
      pool_(cache, device),
      arrays_(device),
      device_budgets_(device),
      scores_(device),
      softmax_parts_(device),
      long_select_(device),
      lists_(device),
      list_count_(device),
      list_splits_(device),
      tile_splits_(device),
      report_(device) {
  if (tuning_.score_floats == 0) tuning_.score_floats = kScoreFloats;
}

void DeviceStep::set_policy(SelectionPolicy policy) {
  const CacheShape& shape = cache_.shape();
  validate(policy, shape.num_layers, shape.num_kv_heads, shape.page_size);
  if (policy.certificate.wanted()) {
    refuse("certificate " + to_string(policy.certificate) +
           " is not available on GPUs; use the CPU backend");
  }
  if (policy.value_threshold > 0) {
    refuse(
        "value_threshold is not available on GPUs, which read every value of a selected page; "
        "give 0");
  }
  std::vector<HeadBudget> budgets;
  for (std::int32_t layer = 0; layer < shape.num_layers; ++layer) {
    for (std::int32_t head = 0; head < shape.num_kv_heads; ++head) {
      const PageBudget budget =
          policy.page_budget(layer, head, shape.num_kv_heads, shape.page_size);
      budgets.push_back({clamped(budget.pages), clamped(budget.crossover)});
    }
  }
  device_budgets_.grow(static_cast<std::int64_t>(budgets.size()));
  device_.upload(device_budgets_.data(), budgets.data(),
                 static_cast<std::int64_t>(budgets.size() * sizeof(HeadBudget)));
  budgets_ = std::move(budgets);
  policy_ = std::move(policy);
}

bool DeviceStep::is_scored(std::int32_t layer, const Row& row, std::int32_t head) const {
  const std::size_t index = static_cast<std::size_t>(layer) * pool_.shape().num_kv_heads + head;
  return row.sparse != 0 && row.num_pages > budgets_[index].crossover;
}

/// Whether any head of the layer could leave pages out, however long the rows.
bool DeviceStep::selects(std::int32_t layer) const {
  const std::int32_t heads = pool_.shape().num_kv_heads;
  const auto first = budgets_.begin() + std::int64_t{layer} * heads;
  return arrays_.sparse_rows() > 0 && std::any_of(first, first + heads, [&](const HeadBudget& b) {
           return b.crossover < pool_.shape().num_pages;
         });
}

/// Most pages that any list may select from rows within the page capacity.
std::int32_t DeviceStep::longest_list() const {
  std::int32_t longest = 1;
  for (const HeadBudget& budget : budgets_) {
    if (budget.crossover >= pool_.shape().num_pages) continue;
    longest = std::max(longest, max_selected_pages(policy_.group_mode, group_, budget.pages,
                                                   arrays_.page_capacity()));
  }
  return longest;
}

void DeviceStep::begin(const Batch& batch, std::int32_t num_q_heads) {
  check_step(batch, cache_, num_q_heads);
  const std::int32_t group = num_q_heads / pool_.shape().num_kv_heads;
  if (group > kMaxGroup) {
    refuse(std::to_string(group) + " query heads share a KV head; GPUs serve at most " +
           std::to_string(kMaxGroup));
  }
  for (std::int32_t r = 0; r < batch.num_requests(); ++r) {
    if (batch.sparse[static_cast<std::size_t>(r)] == 0 || policy_.dense) continue;
    if (batch.num_pages(r) > kMaxScoredPages) {
      refuse("request " + std::to_string(r) + " has " + std::to_string(batch.num_pages(r)) +
             " pages to choose from; GPUs choose from at most " + std::to_string(kMaxScoredPages) +
             ": use larger pages or full attention");
    }
  }
  group_ = group;
  layers_run_.clear();
  marks_ = 0;
  pool_.catch_up();
  arrays_.plan(batch, cache_.shape(), group);
  size_work_space();  // may find too little memory: before any launch
  arrays_.send(batch, cache_.shape(), device_);
  const StepReport report{StepReport::kNoNan, 0, 0};
  device_.upload(report_.data(), &report, sizeof report);
}

void DeviceStep::size_work_space() {
  const std::int64_t heads = pool_.shape().num_kv_heads;
  const std::int64_t lists = arrays_.num_rows() * heads;
  report_.grow(1);
  list_count_.grow(lists);
  work_ = {};
  work_.mode = policy_.group_mode;
  work_.beta = policy_.beta;
  work_.sinks = policy_.sinks;
  work_.window = policy_.window;
  work_.score_rows = num_score_rows(policy_.group_mode, group_);
  if (arrays_.sparse_rows() > 0) {
    work_.scores_stride = arrays_.page_capacity();
    work_.scores_per_list =
        (work_.score_rows + (combines_scores(work_.mode) ? 1 : 0)) * work_.scores_stride;
    const std::int64_t a_row = heads * work_.scores_per_list;
    rows_a_pass_ = static_cast<std::int32_t>(
        std::clamp<std::int64_t>(tuning_.score_floats / a_row, 1, arrays_.num_rows()));
    scores_.grow(rows_a_pass_ * a_row);
    if (LongSelect::serves(work_.mode, arrays_.page_capacity())) {
      long_select_.prepare(work_, rows_a_pass_ * heads, arrays_.page_capacity());
    }
    if (work_.mode == GroupMode::kGroupSoftmax) {
      softmax_parts_.grow(rows_a_pass_ * score_parts() * heads * group_);
    }
    work_.list_stride = longest_list();
    lists_.grow(lists * work_.list_stride);
  }
  work_.scores = scores_.data();
  work_.softmax_parts = softmax_parts_.data();
  work_.lists = lists_.data();
  work_.list_count = list_count_.data();
  work_.list_splits.least_pages = std::max(1, tuning_.split_tokens / pool_.shape().page_size());
  work_.list_splits.most = most_splits(Kernel::kAttend, arrays_.list_rows() * heads);
  size_splits(work_.list_splits, list_splits_, lists, group_);
  // The partial result of a tile is as large as the keys of some pages.
  work_.tile_splits.least_pages = std::max(1, 4 * tuning_.split_tokens / pool_.shape().page_size());
  work_.tile_splits.most = most_splits(Kernel::kPrefill, arrays_.num_tiles() * heads);
  // As many tiles as rows: a replayed step may have more than the one that was captured.
  size_splits(work_.tile_splits, tile_splits_, arrays_.num_tiles() > 0 ? lists : 0, kTileHeads);
  work_.report = report_.data();
}

/// Splits beyond one a list, such that all splits together are as many as the device works on at a
/// time: one more would have it wait for that one. At least half as many where there are that many
/// lists, for one that is longer than the others.
std::int32_t DeviceStep::most_splits(Kernel kernel, std::int64_t lists) const {
  if (tuning_.most_splits > 0) return tuning_.most_splits;
  LayerArgs args;
  args.shape = pool_.shape();
  args.group = group_;
  const std::int64_t wave =
      std::int64_t{device_.resident_blocks(kernel, args)} * device_.multiprocessors();
  return static_cast<std::int32_t>(std::max(wave - lists, (wave + 1) / 2));
}

/// Makes room for a plan over so many lists, whose partial results have `rows` rows each.
void DeviceStep::size_splits(SplitPlan& plan, SplitRoom& room, std::int64_t lists,
                             std::int64_t rows) const {
  room.plan.grow(2 * (lists + 1) + 1);
  plan.indptr = room.plan.data();
  plan.partial_indptr = plan.indptr + lists + 1;
  plan.pages = plan.partial_indptr + lists + 1;
  const std::int64_t longest = (arrays_.page_capacity() + plan.least_pages - 1) / plan.least_pages;
  const std::int64_t partials = std::min(std::int64_t{2} * plan.most, lists * longest);
  const std::int64_t d = pool_.shape().head_dim;
  room.partial.grow(partials * rows * (d + 2));
  plan.o = room.partial.data();
  plan.max = plan.o + partials * rows * d;
  plan.sum = plan.max + partials * rows;
}

LayerArgs DeviceStep::layer_args(std::int32_t layer, const DeviceRows& rows, float scale) const {
  LayerArgs args = work_;
  args.shape = pool_.shape();
  args.pool = pool_.layer(layer);
  args.layer = layer;
  args.group = group_;
  args.scale = scale;
  args.q = rows.q;
  args.k = rows.k;
  args.v = rows.v;
  args.out = rows.out;
  args.log_sum_exp = rows.log_sum_exp;
  args.q_stride = rows.q_stride;
  args.k_stride = rows.k_stride;
  args.v_stride = rows.v_stride;
  args.out_stride = rows.out_stride;
  arrays_.describe(args);
  args.budgets = device_budgets_.data() + std::int64_t{layer} * pool_.shape().num_kv_heads;
  return args;
}

/// Parts of the longest row that the scores have room for.
std::int64_t DeviceStep::score_parts() const {
  return (std::int64_t{arrays_.page_capacity()} + kScorePart - 1) / kScorePart;
}

/// On as many blocks as there is work, but no more than so many a multiprocessor: kernels take
/// further work in turns.
void DeviceStep::launch(Kernel kernel, const LayerArgs& args, std::int64_t work,
                        std::int64_t per_processor) {
  const std::int64_t most = per_processor * device_.multiprocessors();
  device_.launch(kernel, args, std::clamp<std::int64_t>(work, 1, most));
}

void DeviceStep::mark_stage() {
  if (tuning_.timed) device_.mark(marks_++);
}

void DeviceStep::run(std::int32_t layer, const DeviceRows& rows, float scale) {
  if (arrays_.num_rows() == 0) return;
  layers_run_.push_back(layer);
  const LayerArgs args = layer_args(layer, rows, scale);
  store_keys(args);
  select_pages(args);
  attend(args);
}

void DeviceStep::store_keys(const LayerArgs& args) {
  // A row touches a page at most. One kernel for two stages: the second has the time.
  mark_stage();
  mark_stage();
  launch(Kernel::kAppendSummarise, args, std::int64_t{arrays_.num_rows()} * args.shape.num_kv_heads,
         16);
  mark_stage();
}

/// Rows whose scores have no room together take turns.
void DeviceStep::select_pages(const LayerArgs& layer) {
  const std::int64_t heads = layer.shape.num_kv_heads;
  const bool some = selects(layer.layer);
  for (std::int32_t first = 0; some && first < arrays_.num_rows(); first += rows_a_pass_) {
    LayerArgs args = layer;
    args.first_scored = first;
    args.end_scored = std::min(first + rows_a_pass_, arrays_.num_rows());
    const std::int64_t lists = (args.end_scored - first) * heads;
    launch(Kernel::kScore, args, lists * score_parts(), 8);
    if (args.end_scored == arrays_.num_rows()) mark_stage();
    combine_scores(args, lists);
    launch_select(args, lists);
  }
  if (!some) mark_stage();
  mark_stage();
}

void DeviceStep::launch_select(const LayerArgs& args, std::int64_t lists) {
  if (LongSelect::serves(args.mode, arrays_.page_capacity())) {
    LongSelect::launch(device_, args, lists);
  } else {
    device_.launch(Kernel::kSelect, args, lists);
  }
}

/// From a score a query head to the scores that pages are selected by, which `args` then names.
void DeviceStep::combine_scores(LayerArgs& args, std::int64_t lists) {
  if (!combines_scores(args.mode)) return;
  launch(Kernel::kCombine, args, lists * num_combine_parts(args), 8);
  take_combined_scores(args);
}

void DeviceStep::attend(const LayerArgs& args) {
  const std::int64_t heads = args.shape.num_kv_heads;
  const std::int64_t tiles = arrays_.num_tiles() * heads;
  const std::int64_t lists = arrays_.list_rows() * heads;
  device_.launch(Kernel::kPlanSplits, args, tiles > 0 ? 2 : 1);
  if (tiles > 0) launch(Kernel::kPrefill, args, tiles + args.tile_splits.most, 4);
  if (lists > 0) launch(Kernel::kAttend, args, lists + args.list_splits.most, 16);
  launch(Kernel::kMergeSplits, args, lists * group_ + tiles * kTileHeads, 16);
  mark_stage();
}

void DeviceStep::count_layer(std::int32_t layer, AttentionCounters& counters) const {
  const CacheShape& shape = cache_.shape();
  std::int64_t pages_read = 0;
  std::int64_t pages_seen = 0;
  std::int64_t pages_scored = 0;
  for (const Row& row : arrays_.rows()) {
    for (std::int32_t head = 0; head < shape.num_kv_heads; ++head) {
      pages_seen += row.num_pages;
      if (is_scored(layer, row, head)) {
        pages_scored += row.num_pages;
      } else {
        pages_read += row.num_pages;
      }
      // Selected lists that left pages out are moved to the other counter by the device's report.
      ++counters.dense_lists;
    }
  }
  counters.pages_read += pages_read;
  counters.dense_bytes += 2 * pages_seen * shape.page_bytes();
  counters.summary_bytes += pages_scored * shape.summary_bytes();
}

/// Six marks a layer: the beginning, and the end of every stage.
void DeviceStep::count_seconds(StageSeconds& seconds) const {
  double* const stages[] = {&seconds.append, &seconds.summarise, &seconds.score, &seconds.select,
                            &seconds.attend};
  constexpr std::size_t kMarks = 6;
  for (std::size_t first = 0; first + kMarks <= marks_; first += kMarks) {
    for (std::size_t i = 0; i + 1 < kMarks; ++i) {
      *stages[i] += device_.seconds_between(first + i, first + i + 1);
    }
  }
}

void DeviceStep::finish(AttentionCounters& counters) {
  StepReport report;
  device_.download(&report, report_.data(), sizeof report);
  const std::int64_t before = counters.pages_read;
  for (const std::int32_t layer : layers_run_) count_layer(layer, counters);
  const auto sparse = static_cast<std::int64_t>(report.sparse_lists);
  counters.pages_read += static_cast<std::int64_t>(report.pages_read);
  counters.sparse_lists += sparse;
  counters.dense_lists -= sparse;
  const std::int64_t bytes = (counters.pages_read - before) * cache_.shape().page_bytes();
  counters.k_bytes += bytes;
  counters.v_bytes += bytes;
  count_seconds(counters.seconds);
  if (report.nan_place == StepReport::kNoNan) return;
  const auto place = static_cast<std::int64_t>(report.nan_place);
  const std::int64_t heads = pool_.shape().num_kv_heads;
  const std::int64_t rows = arrays_.num_rows();
  throw Error("NaN page score in layer " + std::to_string(place / heads / rows) + ", KV head " +
              std::to_string(place % heads) + ", row " + std::to_string(place / heads % rows) +
              ": a query or a key is NaN; check the model file or keep this layer dense");
}

SelectedPages DeviceStep::last_selection() const {
  SelectedPages selection;
  if (layers_run_.empty()) return selection;
  const std::int32_t heads = pool_.shape().num_kv_heads;
  const std::size_t num_lists = arrays_.rows().size() * static_cast<std::size_t>(heads);
  std::vector<std::int32_t> counts(num_lists);
  std::vector<std::int32_t> lists(num_lists * static_cast<std::size_t>(work_.list_stride));
  const auto bytes = [](const auto& v) {
    return static_cast<std::int64_t>(v.size() * sizeof(std::int32_t));
  };
  device_.download(counts.data(), list_count_.data(), bytes(counts));
  if (!lists.empty()) device_.download(lists.data(), lists_.data(), bytes(lists));
  for (std::size_t i = 0; i < num_lists; ++i) {
    const Row& row = arrays_.rows()[i / static_cast<std::size_t>(heads)];
    const auto head = static_cast<std::int32_t>(i % static_cast<std::size_t>(heads));
    if (is_scored(layers_run_.back(), row, head)) {
      const auto first = lists.begin() + static_cast<std::int64_t>(i) * work_.list_stride;
      selection.pages.insert(selection.pages.end(), first, first + counts[i]);
    } else {
      for (std::int32_t p = 0; p < row.num_pages; ++p) selection.pages.push_back(p);
    }
    selection.indptr.push_back(static_cast<std::int64_t>(selection.pages.size()));
  }
  return selection;
}

}  // namespace quest::cuda
