// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
// Attention of the baselines: stores the new tokens as the serving backend does, lets a baseline
// say what is read, and reads it with the serving kernels (pages) or in plain code (tokens).
#include <atomic>
#include <chrono>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "attention/cpu/float_buffer.h"
#include "attention/cpu/kernels.h"
#include "attention/partial.h"
#include "eval/baseline_state.h"
#include "eval/page_baselines.h"
#include "eval/token_attention.h"
#include "quest/error.h"
#include "quest/team.h"

namespace quest::eval {
namespace {

/// One request with rows, as the baselines see it.
struct Request {
  RowRange rows;
  bool sparse = false;
  SequenceId sequence = 0;
  EvictionState* eviction = nullptr;  ///< of evicting baselines, and of watched prompts
};

/// One (row, KV head).
struct Place {
  std::int32_t row = 0;
  std::int64_t position = 0;
  std::int32_t num_pages = 0;
  std::int32_t head = 0;
};

/// What one thread needs for itself.
struct Space {
  HeadPages pages;
  cpu::FloatBuffer kernel;
  std::vector<float> max_and_sum;
  SelectionScratch selection;
  std::vector<std::byte> gathered_k;
  std::vector<std::byte> gathered_v;
  std::vector<std::int32_t> identity;
  std::vector<double> weights;
  AttentionCounters counters;
  InjectedReads injected;
};

/// Whether the serving backend selects and reads first.
bool follows_policy(BaselineKind kind) {
  return kind == BaselineKind::kGather || kind == BaselineKind::kInject;
}

constexpr std::int64_t kAnyLength = std::numeric_limits<std::int64_t>::max();

class BaselineBackend final : public AttentionBackend {
 public:
  BaselineBackend(KvCache& cache, const SelectionPolicy& policy,
                  std::shared_ptr<BaselineState> state)
      : cache_(cache),
        inner_(make_cpu_backend(cache, policy)),
        kernels_(cpu::kernels_for(cache.shape())),
        state_(std::move(state)),
        policy_(policy) {}

  std::string_view name() const override { return "baseline"; }
  std::string device() const override { return inner_->device(); }

  void set_policy(SelectionPolicy policy) override {
    inner_->set_policy(policy);
    policy_ = std::move(policy);
    all_values_ = false;
  }

  void begin_step(const Batch& batch, std::int32_t num_q_heads, int threads) override {
    kind_ = state_->kind;
    read_all_values(kind_ && follows_policy(*kind_));
    inner_->begin_step(batch, num_q_heads, threads);
    const CacheShape& shape = cache_.shape();
    group_ = num_q_heads / shape.num_kv_heads;
    collect(batch);
    lists_.assign(static_cast<std::size_t>(batch.num_rows()) * shape.num_kv_heads, {});
    nan_ = false;
    spaces_.resize(static_cast<std::size_t>(threads));
    for (Space& space : spaces_) {
      space.kernel.grow(cpu::attend_scratch_floats(shape.head_dim));
      space.max_and_sum.resize(2 * static_cast<std::size_t>(group_));
    }
    if (!watcher_) watcher_.emplace(threads);
  }

  void forward(const LayerInput& input, Team& team, int thread) override {
    if (!kind_) {
      inner_->forward(input, team, thread);
      watch(input, team, thread);
      return;
    }
    const auto start = std::chrono::steady_clock::now();
    Space& space = spaces_[static_cast<std::size_t>(thread)];
    if (follows_policy(*kind_)) {
      inner_->forward(input, team, thread);
      team.wait();  // only now are all lists complete
      if (thread == 0) take_lists(inner_->last_selection());
      team.wait();
    }
    std::int64_t index = 0;
    for (const Request& request : requests_) {
      for (std::int32_t head = 0; head < cache_.shape().num_kv_heads; ++head) {
        if (index++ % team.size() == thread) run_head(input, request, head, space);
      }
    }
    if (thread != 0 || follows_policy(*kind_)) return;
    space.counters.seconds.attend +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  void end_step() override {
    for (Space& space : spaces_) {
      counters_ += space.counters;
      space.counters = {};
      state_->injected += space.injected;
      space.injected = {};
    }
    for (const Request& request : requests_) {
      if (request.eviction == nullptr) continue;
      const std::int64_t length = request.rows.first_position + request.rows.num_rows;
      (kind_ ? request.eviction->length : request.eviction->prompt.tokens) = length;
    }
    inner_->end_step();
    if (nan_) throw Error("a NaN logit: a query or a key is NaN; check the model file");
  }

  const AttentionCounters& counters() const override {
    total_ = counters_;
    total_ += inner_->counters();
    return total_;
  }
  void reset_counters() override {
    counters_ = {};
    inner_->reset_counters();
  }

  SelectedPages last_selection() const override {
    if (!kind_) return inner_->last_selection();
    SelectedPages selection;
    for (const std::vector<std::int32_t>& list : lists_) {
      selection.pages.insert(selection.pages.end(), list.begin(), list.end());
      selection.indptr.push_back(static_cast<std::int64_t>(selection.pages.size()));
    }
    return selection;
  }

 private:
  /// The lists that are attended to once more keep no account of values left out.
  void read_all_values(bool all) {
    if (all == all_values_ || policy_.value_threshold == 0) return;
    SelectionPolicy policy = policy_;
    if (all) policy.value_threshold = 0;
    inner_->set_policy(std::move(policy));
    all_values_ = all;
  }

  void collect(const Batch& batch) {
    requests_.clear();
    for (std::int32_t r = 0; r < batch.num_requests(); ++r) {
      if (batch.num_rows(r) == 0) continue;
      Request request;
      request.rows.first_row = batch.q_indptr[static_cast<std::size_t>(r)];
      request.rows.num_rows = batch.num_rows(r);
      request.rows.first_position =
          batch.kv_len(r, cache_.shape().page_size) - request.rows.num_rows;
      request.rows.table = batch.pages(r);
      request.sparse = batch.sparse[static_cast<std::size_t>(r)] != 0;
      request.sequence = batch.sequences[static_cast<std::size_t>(r)];
      request.eviction = state_->at_work(request.sequence, request.rows.first_position,
                                         request.sparse, num_lists());
      requests_.push_back(request);
    }
  }

  std::size_t num_lists() const {
    const CacheShape& shape = cache_.shape();
    return static_cast<std::size_t>(shape.num_layers) * shape.num_kv_heads;
  }

  void watch(const LayerInput& input, Team& team, int thread) {
    for (const Request& request : requests_) {
      if (request.eviction == nullptr) continue;
      team.wait();  // all keys are stored, and the request before this one is done
      watcher_->observe(cache_.layer(input.layer), request.rows, input, team, thread,
                        request.eviction->prompt);
    }
  }

  void take_lists(const SelectedPages& selection) {
    for (std::size_t i = 0; i < lists_.size(); ++i) {
      lists_[i].assign(selection.pages.begin() + selection.indptr[i],
                       selection.pages.begin() + selection.indptr[i + 1]);
    }
  }

  PageBudget budget(const LayerInput& input, std::int32_t head) const {
    const CacheShape& shape = cache_.shape();
    return policy_.page_budget(input.layer, head, shape.num_kv_heads, shape.page_size);
  }

  void run_head(const LayerInput& input, const Request& request, std::int32_t head, Space& space) {
    const RowRange& rows = request.rows;
    if (!follows_policy(*kind_)) store(input, request, head);
    const PageBudget pages = budget(input, head);
    const bool token_wise = request.sparse && evicts(*kind_) && pages.selects(kAnyLength);
    if (token_wise || (*kind_ == BaselineKind::kOracle && request.sparse)) {
      space.pages.load(cache_.layer(input.layer), rows.table, head,
                       rows.first_position + rows.num_rows);
    }
    for (std::int32_t i = 0; i < rows.num_rows; ++i) {
      Place place;
      place.row = rows.first_row + i;
      place.position = rows.first_position + i;
      place.num_pages = static_cast<std::int32_t>(place.position / cache_.shape().page_size + 1);
      place.head = head;
      if (*kind_ == BaselineKind::kGather) {
        gather(input, request, place, space);
      } else if (*kind_ == BaselineKind::kInject) {
        inject(input, request, place, space);
      } else if (token_wise) {
        run_tokens(input, *request.eviction, place, pages, space);
      } else {
        run_pages(input, request, place, pages, space);
      }
    }
  }

  void store(const LayerInput& input, const Request& request, std::int32_t head) {
    const RowRange& rows = request.rows;
    const std::int64_t offset = std::int64_t{head} * cache_.shape().head_dim;
    cache_.append(input.layer, head, request.sequence, rows.first_position, rows.num_rows,
                  input.k + rows.first_row * input.k_stride + offset, input.k_stride,
                  input.v + rows.first_row * input.v_stride + offset, input.v_stride);
    cache_.summarise(input.layer, head, request.sequence, rows.first_position, rows.num_rows);
  }

  const float* query(const LayerInput& input, const Place& place) const {
    return input.q + place.row * input.q_stride +
           std::int64_t{place.head} * group_ * cache_.shape().head_dim;
  }
  float* output(const LayerInput& input, const Place& place) const {
    return input.out + place.row * input.out_stride +
           std::int64_t{place.head} * group_ * cache_.shape().head_dim;
  }
  std::vector<std::int32_t>& list(const Place& place) {
    return lists_[static_cast<std::size_t>(place.row) * cache_.shape().num_kv_heads + place.head];
  }

  void run_pages(const LayerInput& input, const Request& request, const Place& place,
                 const PageBudget& pages, Space& space) {
    std::vector<std::int32_t>& chosen = list(place);
    if (request.sparse && pages.selects(place.num_pages)) {
      chosen = choose_pages(input, place, pages.pages, space);
    } else {
      chosen.resize(static_cast<std::size_t>(place.num_pages));
      std::iota(chosen.begin(), chosen.end(), 0);
    }
    attend(input, place, in_cache(input, request, place), chosen, space);
    count(static_cast<std::int64_t>(chosen.size()) * cache_.shape().page_bytes(),
          static_cast<std::int64_t>(chosen.size()), place, space.counters);
  }

  cpu::HeadPages in_cache(const LayerInput& input, const Request& request,
                          const Place& place) const {
    const PagedKv kv = cache_.layer(input.layer);
    cpu::HeadPages storage;
    storage.k = kv.k_page(0, place.head);
    storage.v = kv.v_page(0, place.head);
    storage.stride = kv.shape.page_bytes();
    storage.table = request.rows.table;
    return storage;
  }

  std::vector<std::int32_t> choose_pages(const LayerInput& input, const Place& place,
                                         std::int64_t page_budget, Space& space) {
    const ForcedPages forced = forced_pages(place.position + 1, cache_.shape().page_size,
                                            policy_.sinks, policy_.window, page_budget);
    switch (*kind_) {
      case BaselineKind::kStreamingLlm:
        return streaming_pages(forced, page_budget);
      case BaselineKind::kFixed:
        return fixed_pages(forced, page_budget);
      case BaselineKind::kRandom:
        return random_pages(forced, page_budget,
                            {state_->seed, place.position, input.layer, place.head});
      default:
        break;
    }
    const GroupQuery group{query(input, place), group_, input.scale, place.position};
    auto pages =
        oracle_pages(space.pages, group, policy_.group_mode, forced, page_budget, space.selection);
    if (!pages.empty()) return pages;
    nan_ = true;  // reported at the end of the step; some list must stand until then
    return {place.num_pages - 1};
  }

  /// Attention over listed pages by the serving kernel. The row's own page is the last.
  void attend(const LayerInput& input, const Place& place, const cpu::HeadPages& storage,
              const std::vector<std::int32_t>& pages, Space& space) {
    const CacheShape& shape = cache_.shape();
    cpu::AttendArgs args;
    args.pages = storage;
    args.pages.page_size = shape.page_size;
    args.pages.head_dim = shape.head_dim;
    args.q = query(input, place);
    args.heads = group_;
    args.scale = input.scale;
    args.list = pages.data();
    args.count = static_cast<std::int32_t>(pages.size());
    args.last_tokens = static_cast<std::int32_t>(place.position % shape.page_size + 1);
    args.o = output(input, place);
    args.max = space.max_and_sum.data();
    args.sum = args.max + group_;
    args.scratch = space.kernel.data();
    kernels_.attend(args);
    for (std::int32_t h = 0; h < group_; ++h) {
      float* const o = args.o + std::int64_t{h} * shape.head_dim;
      finish({{o, static_cast<std::size_t>(shape.head_dim)}, args.max[h], args.sum[h]}, o);
    }
  }

  void run_tokens(const LayerInput& input, EvictionState& state, const Place& place,
                  const PageBudget& pages, Space& space) {
    const CacheShape& shape = cache_.shape();
    const auto index = static_cast<std::size_t>(input.layer) * shape.num_kv_heads + place.head;
    KeptTokens& kept = state.heads[index];
    const bool heavy = *kind_ == BaselineKind::kH2o;
    if (pages.selects(place.num_pages)) {
      const std::int64_t most = pages.pages * shape.page_size;
      kept.evict(most - 1, heavy ? most / 2 - 1 : 0);  // the row's own token is one of them
    }
    kept.append(place.position);
    space.weights.assign(static_cast<std::size_t>(kept.size()), 0);
    for (std::int32_t h = 0; h < group_; ++h) {
      const std::int64_t offset = std::int64_t{h} * shape.head_dim;
      token_attention(space.pages, kept.tokens(), query(input, place) + offset, input.scale,
                      1.0 / group_, output(input, place) + offset, space.weights);
    }
    if (heavy) {
      kept.add_scores(space.weights);
    } else {
      kept.set_scores(space.weights);
    }
    std::vector<std::int32_t>& touched = list(place);
    touched.clear();
    for (const std::int64_t token : kept.tokens()) {
      const auto page = static_cast<std::int32_t>(token / shape.page_size);
      if (touched.empty() || touched.back() != page) touched.push_back(page);
    }
    const bool all = kept.size() == place.position + 1;
    const std::int64_t bytes = all ? place.num_pages * shape.page_bytes()
                                   : kept.size() * (shape.page_bytes() / shape.page_size);
    count(bytes, static_cast<std::int64_t>(touched.size()), place, space.counters);
    // Tokens may be missing from a list whose pages are all there.
    if (all || touched.size() < static_cast<std::size_t>(place.num_pages)) return;
    ++space.counters.sparse_lists;
    --space.counters.dense_lists;
  }

  /// The pages that the serving backend has just read, copied side by side and read from there. It
  /// counted them once: what the copy reads. Writing it and reading it again come on top.
  void gather(const LayerInput& input, const Request& request, const Place& place, Space& space) {
    const std::vector<std::int32_t>& pages = list(place);
    if (static_cast<std::int32_t>(pages.size()) == place.num_pages) return;
    const PagedKv kv = cache_.layer(input.layer);
    const std::int64_t bytes = kv.shape.page_bytes();
    space.gathered_k.clear();
    space.gathered_v.clear();
    for (const std::int32_t page : pages) {
      const std::byte* const k = kv.k_page(request.rows.table[page], place.head);
      const std::byte* const v = kv.v_page(request.rows.table[page], place.head);
      space.gathered_k.insert(space.gathered_k.end(), k, k + bytes);
      space.gathered_v.insert(space.gathered_v.end(), v, v + bytes);
    }
    space.identity.resize(pages.size());
    std::iota(space.identity.begin(), space.identity.end(), 0);
    cpu::HeadPages storage;
    storage.k = space.gathered_k.data();
    storage.v = space.gathered_v.data();
    storage.stride = bytes;
    storage.table = space.identity.data();
    attend(input, place, storage, space.identity, space);
    space.counters.k_bytes += 2 * static_cast<std::int64_t>(pages.size()) * bytes;
    space.counters.v_bytes += 2 * static_cast<std::int64_t>(pages.size()) * bytes;
  }

  /// The serving backend's list and the injected pages that it lacks, attended to once more. The
  /// serving backend counted its own list; the added pages come on top.
  void inject(const LayerInput& input, const Request& request, const Place& place, Space& space) {
    if (!request.sparse || !state_->injected_layers.holds(input.layer)) return;
    std::vector<std::int32_t>& pages = list(place);
    const std::int64_t added = add_pages(state_->injected_pages, place.num_pages, pages);
    if (added == 0) return;
    attend(input, place, in_cache(input, request, place), pages, space);
    const std::int64_t bytes = added * cache_.shape().page_bytes();
    space.counters.k_bytes += bytes;
    space.counters.v_bytes += bytes;
    space.counters.pages_read += added;
    space.injected += {added, 2 * bytes};
    if (static_cast<std::int32_t>(pages.size()) < place.num_pages) return;
    --space.counters.sparse_lists;
    ++space.counters.dense_lists;
  }

  void count(std::int64_t bytes, std::int64_t pages_read, const Place& place,
             AttentionCounters& counters) const {
    counters.k_bytes += bytes;
    counters.v_bytes += bytes;
    counters.dense_bytes += std::int64_t{2} * place.num_pages * cache_.shape().page_bytes();
    counters.pages_read += pages_read;
    ++(pages_read < place.num_pages ? counters.sparse_lists : counters.dense_lists);
  }

  KvCache& cache_;
  const std::unique_ptr<AttentionBackend> inner_;
  const cpu::Kernels kernels_;
  const std::shared_ptr<BaselineState> state_;
  SelectionPolicy policy_;
  bool all_values_ = false;  ///< the serving backend was told to leave none out

  // The current step.
  std::optional<BaselineKind> kind_;
  std::int32_t group_ = 1;
  std::vector<Request> requests_;
  std::vector<std::vector<std::int32_t>> lists_;  ///< [rows * KV heads], pages
  std::vector<Space> spaces_;
  std::optional<PromptWatcher> watcher_;
  std::atomic<bool> nan_ = false;

  AttentionCounters counters_;
  mutable AttentionCounters total_;
};

}  // namespace

std::unique_ptr<AttentionBackend> make_baseline_backend(KvCache& cache,
                                                        const SelectionPolicy& policy,
                                                        std::shared_ptr<BaselineState> state) {
  return std::make_unique<BaselineBackend>(cache, policy, std::move(state));
}

}  // namespace quest::eval
