// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
//
// Random lives of a cache against a naive model: each sequence is a list of tokens and a list of
// page names, nothing is shared, counts are found by searching. After every command all counts,
// page tables, keys, values and summaries are compared bit by bit.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <rapidcheck/state.h>

#include <algorithm>
#include <map>
#include <memory>
#include <ostream>
#include <set>
#include <vector>

#include "cache/kv_access.h"
#include "quest/error.h"
#include "quest/kv_cache.h"

namespace quest {
namespace {

using namespace quest::testing;

/// Keys and values of tokens: a table of numbers read at a place that the token names.
class Numbers {
 public:
  static constexpr std::uint32_t kSize = 8191;
  explicit Numbers(KvType type) : exact_(kSize), rounded_(kSize) {
    std::mt19937 random(17);
    std::normal_distribution<float> normal(0, 4);
    for (std::size_t i = 0; i < kSize; ++i) {
      exact_[i] = i % 50 == 0 ? (i % 100 == 0 ? 0.0F : -0.0F) : normal(random);
      if (i % 997 == 0) exact_[i] *= 1000;  // extremes that must not linger
      rounded_[i] = rounded(type, exact_[i]);
    }
  }
  static std::uint32_t place(std::uint32_t token, std::int32_t layer, std::int32_t head,
                             bool value) {
    const auto lane = static_cast<std::uint32_t>((layer * 16 + head) * 2 + (value ? 1 : 0));
    return token * 2654435761U + lane * 40503U;
  }
  float exact(std::uint32_t place, std::int64_t channel) const {
    return exact_[(place + static_cast<std::uint32_t>(channel) * 131U) % kSize];
  }
  float stored(std::uint32_t place, std::int64_t channel) const {
    return rounded_[(place + static_cast<std::uint32_t>(channel) * 131U) % kSize];
  }

 private:
  std::vector<float> exact_;
  std::vector<float> rounded_;
};

struct ModelSequence {
  std::vector<std::uint32_t> tokens;
  std::vector<int> pages;  ///< names; two sequences share a page if they hold one name
};

struct Model {
  CacheShape shape;
  std::vector<ModelSequence> sequences;
  std::uint32_t next_token = 0;
  int next_page = 0;

  std::size_t page_count(std::size_t tokens) const {
    const auto size = static_cast<std::size_t>(shape.page_size);
    return (tokens + size - 1) / size;
  }
  bool inside_page(std::size_t tokens) const {
    return tokens % static_cast<std::size_t>(shape.page_size) != 0;
  }
  std::int32_t count(int page) const {
    std::int32_t holders = 0;
    for (const ModelSequence& s : sequences) {
      holders += std::find(s.pages.begin(), s.pages.end(), page) != s.pages.end() ? 1 : 0;
    }
    return holders;
  }
  std::int64_t free_pages() const {
    std::set<int> used;
    for (const ModelSequence& s : sequences) used.insert(s.pages.begin(), s.pages.end());
    return shape.num_pages - static_cast<std::int64_t>(used.size());
  }

  /// False, and no change, if the pool has not enough pages.
  bool append(std::size_t at, std::size_t tokens) {
    const ModelSequence& before = sequences[at];
    ModelSequence after = before;
    std::int64_t needed = 0;
    if (tokens > 0 && inside_page(before.tokens.size()) && count(before.pages.back()) > 1) {
      after.pages.back() = next_page++;
      ++needed;
    }
    std::uint32_t token = next_token;
    for (std::size_t i = 0; i < tokens; ++i) after.tokens.push_back(token++);
    for (; after.pages.size() < page_count(after.tokens.size()); ++needed) {
      after.pages.push_back(next_page++);
    }
    if (needed > free_pages()) return false;
    next_token = token;
    sequences[at] = std::move(after);
    return true;
  }

  bool fork_prefix(std::size_t at, std::size_t length) {
    ModelSequence child = sequences[at];
    const bool cut = inside_page(length) && length < child.tokens.size();
    if (cut && free_pages() == 0) return false;
    child.tokens.resize(length);
    child.pages.resize(page_count(length));
    if (cut) child.pages.back() = next_page++;
    sequences.push_back(std::move(child));
    return true;
  }

  bool truncate(std::size_t at, std::size_t length) {
    if (length == sequences[at].tokens.size()) return true;
    const ModelSequence before = sequences[at];
    sequences[at].tokens.resize(length);
    sequences[at].pages.resize(page_count(length));
    if (!inside_page(length) || count(sequences[at].pages.back()) == 1) return true;
    if (free_pages() == 0) {
      sequences[at] = before;
      return false;
    }
    sequences[at].pages.back() = next_page++;
    return true;
  }
};

struct Sut {
  explicit Sut(const CacheShape& shape) : cache(shape), numbers(shape.type) { poison(cache, 0xFF); }
  KvCache cache;
  Numbers numbers;
  std::vector<SequenceId> ids;  ///< in the order of the model's sequences
};

void check_page_tables(const Model& model, const Sut& sut) {
  std::map<int, std::int32_t> physical;
  std::map<std::int32_t, int> names;
  for (std::size_t s = 0; s < model.sequences.size(); ++s) {
    const auto pages = sut.cache.pages(sut.ids[s]);
    const ModelSequence& expected = model.sequences[s];
    RC_ASSERT(sut.cache.length(sut.ids[s]) == static_cast<std::int64_t>(expected.tokens.size()));
    RC_ASSERT(pages.size() == expected.pages.size());
    for (std::size_t p = 0; p < pages.size(); ++p) {
      // Shared exactly where the model shares.
      RC_ASSERT(physical.emplace(expected.pages[p], pages[p]).first->second == pages[p]);
      RC_ASSERT(names.emplace(pages[p], expected.pages[p]).first->second == expected.pages[p]);
    }
  }
  for (std::int32_t page = 0; page < model.shape.num_pages; ++page) {
    const auto name = names.find(page);
    RC_ASSERT(sut.cache.reference_count(page) ==
              (name == names.end() ? 0 : model.count(name->second)));
  }
  RC_ASSERT(sut.cache.free_pages() == model.free_pages());
}

/// Elements of one page, layer and head that are not what the tokens say.
std::int64_t wrong_in_page(const PagedKv& kv, const Numbers& numbers, std::int32_t layer,
                           std::int32_t head, std::int32_t page, const std::uint32_t* tokens,
                           std::int64_t count) {
  std::vector<Extremes> extremes(static_cast<std::size_t>(kv.shape.head_dim));
  std::int64_t wrong = 0;
  for (std::int64_t t = 0; t < count; ++t) {
    const std::uint32_t k = Numbers::place(tokens[t], layer, head, false);
    const std::uint32_t v = Numbers::place(tokens[t], layer, head, true);
    for (std::int64_t j = 0; j < kv.shape.head_dim; ++j) {
      const float key = numbers.stored(k, j);
      wrong += !same_bits(key_at(kv, page, head, t, j), key);
      wrong += !same_bits(value_at(kv, page, head, t, j), numbers.stored(v, j));
      extremes[static_cast<std::size_t>(j)].add(key);
    }
  }
  for (std::int64_t j = 0; j < kv.shape.head_dim; ++j) {
    wrong += !same_bits(minimum_at(kv, page, head, j), extremes[static_cast<std::size_t>(j)].low);
    wrong += !same_bits(maximum_at(kv, page, head, j), extremes[static_cast<std::size_t>(j)].high);
  }
  return wrong;
}

void check_contents(const Model& model, const Sut& sut) {
  // A page that two sequences share is compared once, unless one of them sees less of it.
  std::set<std::pair<std::int32_t, std::vector<std::uint32_t>>> seen;
  for (std::size_t s = 0; s < model.sequences.size(); ++s) {
    const std::vector<std::uint32_t>& tokens = model.sequences[s].tokens;
    const auto pages = sut.cache.pages(sut.ids[s]);
    for (std::size_t p = 0; p < pages.size(); ++p) {
      const std::size_t start = p * static_cast<std::size_t>(model.shape.page_size);
      const std::size_t end =
          std::min(tokens.size(), start + static_cast<std::size_t>(model.shape.page_size));
      const std::vector<std::uint32_t> held(tokens.begin() + static_cast<std::ptrdiff_t>(start),
                                            tokens.begin() + static_cast<std::ptrdiff_t>(end));
      if (!seen.emplace(pages[p], held).second) continue;
      for (std::int32_t layer = 0; layer < model.shape.num_layers; ++layer) {
        const PagedKv kv = sut.cache.layer(layer);
        for (std::int32_t head = 0; head < model.shape.num_kv_heads; ++head) {
          const std::int64_t wrong =
              wrong_in_page(kv, sut.numbers, layer, head, pages[p], held.data(),
                            static_cast<std::int64_t>(held.size()));
          RC_ASSERT(wrong == 0);
        }
      }
    }
  }
}

void check_all(const Model& model, const Sut& sut) {
  check_page_tables(model, sut);
  check_contents(model, sut);
}

using Command = rc::state::Command<Model, Sut>;

/// 0 if there is none: the command's precondition then turns it down.
std::size_t any_index(std::size_t size) {
  if (size == 0) return 0;
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::size_t>(0, size));
}

std::size_t length_of(const Model& model, std::size_t at) {
  return at < model.sequences.size() ? model.sequences[at].tokens.size() : 0;
}

/// 0..size, the ends of pages more often than chance has it.
std::size_t any_length(const Model& model, std::size_t size) {
  const auto page = static_cast<std::size_t>(model.shape.page_size);
  const std::size_t length =
      *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::size_t>(0, size + 1));
  const std::size_t snapped =
      length / page * page + *rc::gen::element<std::size_t>(0, 0, 1, page - 1);
  return *rc::gen::arbitrary<bool>() && snapped <= size ? snapped : length;
}

/// Throws out of the command unless the cache was out of pages exactly when the model was.
template <typename Call>
void expect_pages(bool enough, const Call& call) {
  bool had = true;
  try {
    call();
  } catch (const OutOfPages&) {
    had = false;
  }
  RC_ASSERT(had == enough);
}

struct Create : Command {
  explicit Create(const Model&) {}
  void checkPreconditions(const Model& model) const override {
    RC_PRE(model.sequences.size() < 5U);
  }
  void apply(Model& model) const override { model.sequences.emplace_back(); }
  void run(const Model& model, Sut& sut) const override {
    sut.ids.push_back(sut.cache.create());
    check_all(nextState(model), sut);
  }
  void show(std::ostream& os) const override { os << "Create"; }
};

struct Append : Command {
  std::size_t at;
  std::size_t count;
  std::int64_t piece;  ///< tokens of one append call

  explicit Append(const Model& model)
      : at(any_index(model.sequences.size())),
        count(any_length(model, static_cast<std::size_t>(2 * model.shape.page_size))),
        piece(*rc::gen::element<std::int64_t>(1, 3, 8, 13, 1000)) {}
  void checkPreconditions(const Model& model) const override {
    RC_PRE(at < model.sequences.size());
  }
  void apply(Model& model) const override { model.append(at, count); }
  void run(const Model& model, Sut& sut) const override {
    Model after = model;
    const bool enough = after.append(at, count);
    const SequenceId id = sut.ids[at];
    const std::int64_t start = sut.cache.length(id);
    expect_pages(enough, [&] { sut.cache.reserve(id, static_cast<std::int64_t>(count)); });
    if (enough) write(model, sut, id, start);
    check_all(after, sut);
  }
  void write(const Model& model, Sut& sut, SequenceId id, std::int64_t start) const {
    const std::int64_t d = model.shape.head_dim;
    const std::int64_t k_stride = d + 5;
    const std::int64_t v_stride = 3 * d;
    std::vector<float> k(count * static_cast<std::size_t>(k_stride));
    std::vector<float> v(count * static_cast<std::size_t>(v_stride));
    const auto tokens = static_cast<std::int64_t>(count);
    for (std::int32_t layer = 0; layer < model.shape.num_layers; ++layer) {
      for (std::int32_t head = 0; head < model.shape.num_kv_heads; ++head) {
        for (std::int64_t t = 0; t < tokens; ++t) {
          const auto token = model.next_token + static_cast<std::uint32_t>(t);
          for (std::int64_t j = 0; j < d; ++j) {
            k[static_cast<std::size_t>(t * k_stride + j)] =
                sut.numbers.exact(Numbers::place(token, layer, head, false), j);
            v[static_cast<std::size_t>(t * v_stride + j)] =
                sut.numbers.exact(Numbers::place(token, layer, head, true), j);
          }
        }
        for (std::int64_t done = 0; done < tokens; done += piece) {
          const std::int64_t now = std::min(piece, tokens - done);
          sut.cache.append(layer, head, id, start + done, now, k.data() + done * k_stride, k_stride,
                           v.data() + done * v_stride, v_stride);
          sut.cache.summarise(layer, head, id, start + done, now);
        }
      }
    }
  }
  void show(std::ostream& os) const override {
    os << "Append(" << at << ", " << count << " by " << piece << ")";
  }
};

struct Fork : Command {
  std::size_t at;
  explicit Fork(const Model& model) : at(any_index(model.sequences.size())) {}
  void checkPreconditions(const Model& model) const override {
    RC_PRE(at < model.sequences.size() && model.sequences.size() < 5U);
  }
  void apply(Model& model) const override {
    const ModelSequence parent = model.sequences[at];
    model.sequences.push_back(parent);
  }
  void run(const Model& model, Sut& sut) const override {
    sut.ids.push_back(sut.cache.fork(sut.ids[at]));
    check_all(nextState(model), sut);
  }
  void show(std::ostream& os) const override { os << "Fork(" << at << ")"; }
};

struct ForkPrefix : Command {
  std::size_t at;
  std::size_t length;
  explicit ForkPrefix(const Model& model)
      : at(any_index(model.sequences.size())), length(any_length(model, length_of(model, at))) {}
  void checkPreconditions(const Model& model) const override {
    RC_PRE(at < model.sequences.size() && model.sequences.size() < 5U);
    RC_PRE(length <= model.sequences[at].tokens.size());
  }
  void apply(Model& model) const override { model.fork_prefix(at, length); }
  void run(const Model& model, Sut& sut) const override {
    Model after = model;
    expect_pages(after.fork_prefix(at, length), [&] {
      sut.ids.push_back(sut.cache.fork_prefix(sut.ids[at], static_cast<std::int64_t>(length)));
    });
    check_all(after, sut);
  }
  void show(std::ostream& os) const override { os << "ForkPrefix(" << at << ", " << length << ")"; }
};

struct Truncate : Command {
  std::size_t at;
  std::size_t length;
  explicit Truncate(const Model& model)
      : at(any_index(model.sequences.size())), length(any_length(model, length_of(model, at))) {}
  void checkPreconditions(const Model& model) const override {
    RC_PRE(at < model.sequences.size() && length <= model.sequences[at].tokens.size());
  }
  void apply(Model& model) const override { model.truncate(at, length); }
  void run(const Model& model, Sut& sut) const override {
    Model after = model;
    expect_pages(after.truncate(at, length),
                 [&] { sut.cache.truncate(sut.ids[at], static_cast<std::int64_t>(length)); });
    check_all(after, sut);
  }
  void show(std::ostream& os) const override { os << "Truncate(" << at << ", " << length << ")"; }
};

struct Release : Command {
  std::size_t at;
  explicit Release(const Model& model) : at(any_index(model.sequences.size())) {}
  void checkPreconditions(const Model& model) const override {
    RC_PRE(at < model.sequences.size());
  }
  void apply(Model& model) const override {
    model.sequences.erase(model.sequences.begin() + static_cast<std::ptrdiff_t>(at));
  }
  void run(const Model& model, Sut& sut) const override {
    sut.cache.release(sut.ids[at]);
    sut.ids.erase(sut.ids.begin() + static_cast<std::ptrdiff_t>(at));
    check_all(nextState(model), sut);
  }
  void show(std::ostream& os) const override { os << "Release(" << at << ")"; }
};

RC_GTEST_PROP(KvCacheProperty, RandomLifeEqualsNaiveModel, ()) {
  CacheShape shape;
  shape.num_layers = *rc::gen::inRange(1, 3);
  shape.num_kv_heads = *rc::gen::inRange(1, 3);
  shape.head_dim = *rc::gen::element(64, 80, 96, 128, 256);
  shape.page_size = *rc::gen::element(8, 16, 32, 64);
  shape.type = *rc::gen::element(KvType::kF32, KvType::kF16, KvType::kBF16);
  shape.num_pages = *rc::gen::inRange(2, 9);
  RC_LOG() << "layers " << shape.num_layers << " heads " << shape.num_kv_heads << " d "
           << shape.head_dim << " S " << shape.page_size << ' ' << name_of(shape.type) << " pages "
           << shape.num_pages << std::endl;
  Model model;
  model.shape = shape;
  model.sequences.resize(1);
  Sut sut(shape);
  sut.ids.push_back(sut.cache.create());
  // Append thrice: lives should reach a full pool.
  rc::state::check(model, sut,
                   rc::state::gen::execOneOfWithArgs<Create, Append, Append, Append, Fork,
                                                     ForkPrefix, Truncate, Release>());
}

}  // namespace
}  // namespace quest
