// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "attention/reference/reference_certificate.h"
#include "attention/reference/reference_selection.h"
#include "cache/page_codec.h"
#include "quest/attention.h"
#include "quest/error.h"
#include "quest/team.h"

namespace quest {

namespace {

/// Adds the seconds between construction and destruction to a counter.
class StageClock {
 public:
  explicit StageClock(double& seconds) : seconds_(seconds) {}
  ~StageClock() { seconds_ += std::chrono::duration<double>(Clock::now() - start_).count(); }
  StageClock(const StageClock&) = delete;
  StageClock& operator=(const StageClock&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  double& seconds_;
  const Clock::time_point start_ = Clock::now();
};

/// One query row of one request, as selection and attention see it.
struct Row {
  std::int32_t index = 0;                    ///< row of the batch
  std::int64_t position = 0;                 ///< of its own token; it sees tokens 0 … position
  const std::int32_t* page_table = nullptr;  ///< physical page of each logical page
  bool sparse = false;
};

class ReferenceBackend final : public AttentionBackend {
 public:
  ReferenceBackend(KvCache& cache, SelectionPolicy policy) : cache_(cache) {
    ReferenceBackend::set_policy(std::move(policy));
  }

  std::string_view name() const override { return "reference"; }
  std::string device() const override { return "cpu"; }

  void set_policy(SelectionPolicy policy) override {
    const CacheShape& shape = cache_.shape();
    validate(policy, shape.num_layers, shape.num_kv_heads, shape.page_size);
    policy_ = std::move(policy);
  }

  void begin_step(const Batch& batch, std::int32_t num_q_heads, int /*threads*/) override {
    const CacheShape& shape = cache_.shape();
    validate(batch, shape);
    if (num_q_heads <= 0 || num_q_heads % shape.num_kv_heads != 0) {
      throw InvalidArgument("num_q_heads " + std::to_string(num_q_heads) +
                            " is not a multiple of the cache's " +
                            std::to_string(shape.num_kv_heads) + " KV heads");
    }
    batch_ = &batch;
    group_ = num_q_heads / shape.num_kv_heads;
    nan_.clear();
  }

  void forward(const LayerInput& input, Team& team, int thread) override {
    if (thread == 0) run_layer(input);
    team.wait();
  }

  void end_step() override {
    batch_ = nullptr;
    if (nan_.empty()) return;
    const std::string message = std::move(nan_);
    nan_.clear();
    throw Error(message);
  }

  const AttentionCounters& counters() const override { return counters_; }
  void reset_counters() override { counters_ = {}; }
  SelectedPages last_selection() const override { return selection_; }

 private:
  void run_layer(const LayerInput& input) {
    selection_ = {};
    for (std::int32_t r = 0; r < batch_->num_requests(); ++r) store(input, r);
    for (std::int32_t r = 0; r < batch_->num_requests(); ++r) {
      for (std::int32_t i = 0; i < batch_->num_rows(r); ++i) {
        const Row row{batch_->q_indptr[r] + i, first_position(r) + i, batch_->pages(r),
                      batch_->sparse[r] != 0};
        for (std::int32_t head = 0; head < cache_.shape().num_kv_heads; ++head) {
          run_head(input, row, head);
        }
      }
    }
  }

  std::int64_t first_position(std::int32_t request) const {
    return batch_->kv_len(request, cache_.shape().page_size) - batch_->num_rows(request);
  }

  void store(const LayerInput& input, std::int32_t request) {
    const std::int32_t rows = batch_->num_rows(request);
    if (rows == 0) return;
    const std::int64_t sequence = batch_->sequences[request];
    const std::int64_t position = first_position(request);
    const std::int64_t first_row = batch_->q_indptr[request];
    for (std::int32_t head = 0; head < cache_.shape().num_kv_heads; ++head) {
      const std::int64_t offset = std::int64_t{head} * cache_.shape().head_dim;
      {
        const StageClock clock(counters_.seconds.append);
        cache_.append(input.layer, head, sequence, position, rows,
                      input.k + first_row * input.k_stride + offset, input.k_stride,
                      input.v + first_row * input.v_stride + offset, input.v_stride);
      }
      const StageClock clock(counters_.seconds.summarise);
      cache_.summarise(input.layer, head, sequence, position, rows);
    }
  }

  void run_head(const LayerInput& input, const Row& row, std::int32_t head) {
    const CacheShape& shape = cache_.shape();
    const auto num_pages = static_cast<std::int32_t>(row.position / shape.page_size + 1);
    const PageBudget budget =
        policy_.page_budget(input.layer, head, shape.num_kv_heads, shape.page_size);
    std::vector<std::int32_t> pages;
    const bool selected = row.sparse && budget.selects(num_pages);
    if (selected) {
      pages = select(input, row, head, num_pages, budget.pages);
    } else {
      for (std::int32_t p = 0; p < num_pages; ++p) pages.push_back(p);
    }
    count(static_cast<std::int64_t>(pages.size()), num_pages);
    attend(input, row, head, num_pages, pages, selected ? policy_.value_threshold : 0);
    selection_.pages.insert(selection_.pages.end(), pages.begin(), pages.end());
    selection_.indptr.push_back(static_cast<std::int64_t>(selection_.pages.size()));
  }

  const float* query(const LayerInput& input, const Row& row, std::int32_t head,
                     std::int32_t member) const {
    return input.q + row.index * input.q_stride +
           (std::int64_t{head} * group_ + member) * cache_.shape().head_dim;
  }

  std::vector<std::int32_t> select(const LayerInput& input, const Row& row, std::int32_t head,
                                   std::int32_t num_pages, std::int64_t budget) {
    const CacheShape& shape = cache_.shape();
    std::vector<std::vector<double>> scores(group_);
    {
      const StageClock clock(counters_.seconds.score);
      const PagedKv kv = cache_.layer(input.layer);
      std::vector<float> summary(2 * static_cast<std::size_t>(shape.head_dim));
      for (std::int32_t p = 0; p < num_pages; ++p) {
        decode_summary(shape, kv.summary(row.page_table[p], head), summary.data());
        for (std::int32_t g = 0; g < group_; ++g) {
          scores[g].push_back(reference::score_page(query(input, row, head, g), summary.data(),
                                                    summary.data() + shape.head_dim, shape.head_dim,
                                                    policy_.beta));
        }
      }
      counters_.summary_bytes += num_pages * shape.summary_bytes();
    }
    const StageClock clock(counters_.seconds.select);
    const auto forced = reference::forced_pages(policy_, row.position + 1, shape.page_size, budget);
    bool nan = false;
    if (policy_.certificate.wanted() && !has_nan(scores)) {
      return certify(input, row, head, {std::move(scores), {}, forced, budget, input.scale});
    }
    auto pages =
        reference::select_pages(policy_.group_mode, scores, forced, budget, input.scale, nan);
    if (nan && nan_.empty()) {
      nan_ = "NaN page score in layer " + std::to_string(input.layer) + ", KV head " +
             std::to_string(head) + ", row " + std::to_string(row.index) +
             ": a query or a key is NaN; check the model file or keep this layer dense";
    }
    return pages;
  }

  static bool has_nan(const std::vector<std::vector<double>>& scores) {
    for (const auto& row : scores) {
      if (std::any_of(row.begin(), row.end(), [](double x) { return std::isnan(x); })) return true;
    }
    return false;
  }

  std::vector<std::int32_t> certify(const LayerInput& input, const Row& row, std::int32_t head,
                                    reference::CertificateCase given) {
    const auto num_pages = static_cast<std::int64_t>(given.bounds[0].size());
    for (std::int32_t g = 0; g < group_; ++g) {
      given.logits.emplace_back();
      for (std::int64_t p = 0; p < num_pages; ++p) {
        given.logits.back().push_back(page_logits(input, row, head, query(input, row, head, g), p));
      }
    }
    const reference::CertifiedList list = reference::certify(policy_.certificate, given);
    counters_.probe_bytes += list.probed * cache_.shape().page_bytes();
    counters_.certificates.add(static_cast<std::int64_t>(list.pages.size()), num_pages,
                               list.epsilon);
    return list.pages;
  }

  /// q·k of the keys of a page that the row sees.
  std::vector<double> page_logits(const LayerInput& input, const Row& row, std::int32_t head,
                                  const float* q, std::int64_t page) {
    const CacheShape& shape = cache_.shape();
    std::vector<float> k(shape.page_elements());
    decode_keys(shape, cache_.layer(input.layer).k_page(row.page_table[page], head), k.data());
    std::vector<double> logits;
    for (std::int64_t slot = 0; slot < shape.page_size; ++slot) {
      if (page * shape.page_size + slot > row.position) break;
      double dot = 0;
      for (std::int32_t j = 0; j < shape.head_dim; ++j) {
        dot += double{q[j]} * k[std::int64_t{j} * shape.page_size + slot];
      }
      logits.push_back(dot);
    }
    return logits;
  }

  void count(std::int64_t pages_read, std::int64_t num_pages) {
    const std::int64_t page_bytes = cache_.shape().page_bytes();
    counters_.k_bytes += pages_read * page_bytes;
    counters_.v_bytes += pages_read * page_bytes;
    counters_.dense_bytes += 2 * num_pages * page_bytes;
    counters_.pages_read += pages_read;
    ++(pages_read < num_pages ? counters_.sparse_lists : counters_.dense_lists);
  }

  /// Full attention over all tokens that the row sees, with the pages left out masked, and of the
  /// others the values below `threshold`.
  void attend(const LayerInput& input, const Row& row, std::int32_t head, std::int32_t num_pages,
              const std::vector<std::int32_t>& pages, float threshold) {
    const StageClock clock(counters_.seconds.attend);
    std::vector<bool> reads(num_pages, false);
    for (std::int32_t p : pages) reads[p] = true;
    std::vector<std::vector<double>> weights;
    weights.reserve(group_);
    for (std::int32_t g = 0; g < group_; ++g) {
      weights.push_back(token_weights(input, row, head, query(input, row, head, g), reads));
    }
    if (threshold > 0) drop_light_values(reads, double{threshold}, weights);
    for (std::int32_t g = 0; g < group_; ++g) {
      float* out = input.out + row.index * input.out_stride +
                   (std::int64_t{head} * group_ + g) * cache_.shape().head_dim;
      weigh_values(input, row, head, reads, weights[g], out);
    }
  }

  /// Sets the weights of tokens to 0 that are light for every query head (see
  /// SelectionPolicy::value_threshold), and takes their values from the bytes that `count` added.
  void drop_light_values(const std::vector<bool>& reads, double threshold,
                         std::vector<std::vector<double>>& weights) {
    const std::int32_t page_size = cache_.shape().page_size;
    const auto tokens = static_cast<std::int64_t>(weights[0].size());
    std::int64_t listed = 0;
    for (std::int64_t t = 0; t < tokens; ++t) listed += reads[t / page_size] ? 1 : 0;
    std::int64_t kept = 0;
    std::vector<double> cuts;
    cuts.reserve(group_);
    for (const std::vector<double>& row : weights) {
      cuts.push_back(threshold / static_cast<double>(listed) *
                     std::accumulate(row.begin(), row.end(), 0.0));
    }
    for (std::int64_t t = 0; t < tokens; ++t) {
      if (!reads[t / page_size]) continue;
      bool keep = false;
      for (std::int32_t g = 0; g < group_; ++g) keep = keep || !(weights[g][t] < cuts[g]);
      kept += keep ? 1 : 0;
      for (std::int32_t g = 0; g < group_ && !keep; ++g) weights[g][t] = 0;
    }
    const std::int64_t pages = std::count(reads.begin(), reads.end(), true);
    counters_.v_bytes -= (pages * page_size - kept) * cache_.shape().value_bytes();
  }

  /// exp(logit - greatest logit) of all tokens that the row sees, 0 in pages that are not read.
  std::vector<double> token_weights(const LayerInput& input, const Row& row, std::int32_t head,
                                    const float* q, const std::vector<bool>& reads) {
    const CacheShape& shape = cache_.shape();
    const PagedKv kv = cache_.layer(input.layer);
    const std::int32_t d = shape.head_dim;
    const std::int32_t page_size = shape.page_size;
    std::vector<float> k(shape.page_elements());

    constexpr double kMasked = -std::numeric_limits<double>::infinity();
    std::vector<double> logits(row.position + 1, kMasked);
    for (std::size_t p = 0; p < reads.size(); ++p) {
      if (!reads[p]) continue;
      decode_keys(shape, kv.k_page(row.page_table[p], head), k.data());
      for (std::int64_t slot = 0; slot < page_size; ++slot) {
        const auto t = static_cast<std::int64_t>(p) * page_size + slot;
        if (t > row.position) break;
        double dot = 0;
        for (std::int32_t j = 0; j < d; ++j)
          dot += double{q[j]} * k[std::int64_t{j} * page_size + slot];
        logits[t] = input.scale * dot;
      }
    }

    const double top = *std::max_element(logits.begin(), logits.end());
    for (double& logit : logits) logit = std::exp(logit - top);
    return logits;
  }

  void weigh_values(const LayerInput& input, const Row& row, std::int32_t head,
                    const std::vector<bool>& reads, const std::vector<double>& weights,
                    float* out) {
    const CacheShape& shape = cache_.shape();
    const PagedKv kv = cache_.layer(input.layer);
    const std::int32_t d = shape.head_dim;
    const std::int32_t page_size = shape.page_size;
    std::vector<float> v(shape.page_elements());
    double sum = 0;
    std::vector<double> o(d, 0.0);
    for (std::size_t p = 0; p < reads.size(); ++p) {
      if (!reads[p]) continue;
      decode_values(shape, kv.v_page(row.page_table[p], head), v.data());
      for (std::int64_t slot = 0; slot < page_size; ++slot) {
        const auto t = static_cast<std::int64_t>(p) * page_size + slot;
        if (t > row.position) break;
        const double weight = weights[t];
        sum += weight;
        for (std::int32_t j = 0; j < d; ++j) o[j] += weight * v[slot * d + j];
      }
    }
    for (std::int32_t j = 0; j < d; ++j) out[j] = static_cast<float>(o[j] / sum);
  }

  KvCache& cache_;
  SelectionPolicy policy_;
  const Batch* batch_ = nullptr;
  std::int32_t group_ = 1;
  AttentionCounters counters_;
  SelectedPages selection_;
  std::string nan_;  ///< what scoring found in this step; empty if nothing
};

}  // namespace

std::unique_ptr<AttentionBackend> make_reference_backend(KvCache& cache, SelectionPolicy policy) {
  return std::make_unique<ReferenceBackend>(cache, std::move(policy));
}

}  // namespace quest
