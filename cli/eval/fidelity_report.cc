// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "eval/fidelity_report.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "eval/eval_run.h"

namespace quest::cli {
namespace {

double per_token(double sum, const eval::HeadFidelity& head) {
  return head.tokens > 0 ? sum / static_cast<double>(head.tokens) : 0;
}

constexpr HeadFigure kFigures[] = {
    {"page_share", "Pages read, share of all", false,
     [](const eval::HeadFidelity& head) { return per_token(head.page_share, head); }},
    {"page_recall", "Page recall of the top tokens", true,
     [](const eval::HeadFidelity& head) { return per_token(head.page_recall, head); }},
    {"mass", "Attention mass on the pages read", true,
     [](const eval::HeadFidelity& head) { return per_token(head.mass, head); }},
    {"cosine", "Cosine of the attention output with full attention's", true,
     [](const eval::HeadFidelity& head) { return per_token(head.cosine, head); }},
    {"relative_l2", "Relative L2 error of the attention output", false,
     [](const eval::HeadFidelity& head) { return per_token(head.relative_l2, head); }},
    {"regret", "Regret: pages scored above the best page", false,
     [](const eval::HeadFidelity& head) { return per_token(head.regret, head); }},
    {"slack", "Slack of the bound, in logits", false, [](const eval::HeadFidelity& head) {
       return head.slack_pages > 0 ? head.slack / static_cast<double>(head.slack_pages) : 0;
     }}};

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

/// Good values are pale, bad ones dark red, so that trouble stands out. share: 0 good, 1 bad.
std::string colour(double share) {
  const double x = std::clamp(share, 0.0, 1.0);
  const auto mix = [x](double good, double bad) {
    return static_cast<int>(std::lround(good + (bad - good) * x));
  };
  return format("#%02x%02x%02x", mix(246, 140), mix(247, 20), mix(242, 40));
}

std::string heat_map(const eval::FidelityRun& run, const HeadFigure& figure) {
  constexpr int kCell = 18;
  constexpr int kMargin = 34;
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  for (std::int32_t layer = 0; layer < run.num_layers; ++layer) {
    if (!is_sparse_layer(run, layer)) continue;
    for (std::int32_t h = 0; h < run.num_q_heads; ++h) {
      low = std::min(low, figure.value(run.head(layer, h)));
      high = std::max(high, figure.value(run.head(layer, h)));
    }
  }
  std::string svg = format(
      "<figure><figcaption>%s<br><small>%.4g … %.4g over the sparse layers</small></figcaption>"
      "<svg role=\"img\" aria-label=\"%s\" width=\"%d\" height=\"%d\">\n",
      figure.title, low, high, figure.title, kMargin + run.num_layers * kCell + 2,
      kMargin + run.num_q_heads * kCell);
  for (std::int32_t layer = 0; layer < run.num_layers; ++layer) {
    if (layer % 5 == 0) {
      svg += format("<text x=\"%d\" y=\"12\">%d</text>\n", kMargin + layer * kCell + 2, layer);
    }
    for (std::int32_t h = 0; h < run.num_q_heads; ++h) {
      const double value = figure.value(run.head(layer, h));
      const double share = high > low ? (value - low) / (high - low) : 0;
      const std::string fill = !is_sparse_layer(run, layer) ? "#d8dce3"
                               : figure.more_is_better      ? colour(1 - share)
                                                            : colour(share);
      svg += format(
          "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\"><title>layer %d, head %d:"
          " %.4g</title></rect>\n",
          kMargin + layer * kCell, 18 + h * kCell, kCell - 1, kCell - 1, fill.c_str(), layer, h,
          value);
    }
  }
  for (std::int32_t h = 0; h < run.num_q_heads; ++h) {
    svg += format("<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%d</text>\n", kMargin - 6,
                  18 + h * kCell + 13, h);
  }
  return svg + "</svg></figure>\n";
}

std::string jaccard_bars(const eval::FidelityRun& run) {
  constexpr int kCell = 18;
  constexpr int kMargin = 34;
  constexpr int kHeight = 80;
  std::string svg = format(
      "<figure><figcaption>Pages shared with the layer before (Jaccard)<br><small>bars to 1"
      "</small></figcaption><svg role=\"img\" aria-label=\"Jaccard of adjacent layers\" "
      "width=\"%d\" height=\"%d\">\n",
      kMargin + run.num_layers * kCell + 2, kHeight + 18);
  for (std::int32_t layer = 0; layer < run.num_layers; ++layer) {
    const auto i = static_cast<std::size_t>(layer);
    const int x = kMargin + layer * kCell;
    if (layer % 5 == 0) {
      svg += format("<text x=\"%d\" y=\"%d\">%d</text>\n", x + 2, kHeight + 14, layer);
    }
    if (run.jaccard_tokens[i] == 0) continue;
    const double value = run.jaccard[i] / static_cast<double>(run.jaccard_tokens[i]);
    const int height = static_cast<int>(std::lround(value * kHeight));
    svg += format(
        "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#41719c\"><title>layer %d: "
        "%.3f</title></rect>\n",
        x, kHeight - height, kCell - 1, height, layer, value);
  }
  return svg + "</svg></figure>\n";
}

std::string section(const char* title, const eval::FidelityRun& run) {
  std::string html = format("<section><h2>%s</h2>\n<table>", title);
  html += format("<tr><th>tokens</th><td>%zu</td></tr>", run.kl.size());
  html += format("<tr><th>KV bytes read</th><td>%.1f %% of full attention</td></tr>",
                 100 * run.cost.bytes_share());
  html += format("<tr><th>KL of the final logits</th><td>%.4f</td></tr>", eval::mean(run.kl));
  for (const HeadFigure& figure : head_figures()) {
    html += format("<tr><th>%s</th><td>%.4f</td></tr>", figure.title, sparse_mean(run, figure));
  }
  html += "</table>\n<div class=\"maps\">\n";
  for (const HeadFigure& figure : head_figures()) html += heat_map(run, figure);
  return html + jaccard_bars(run) + "</div></section>\n";
}

constexpr const char* kHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Quest fidelity</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1280px; padding: 0 1rem;
       color: #1c2430; background: #fff }
h1 { font-size: 1.5rem } h2 { font-size: 1.2rem; margin-top: 2.5rem }
table { border-collapse: collapse } th { text-align: left; font-weight: 400; padding-right: 2rem }
td { font-variant-numeric: tabular-nums }
.maps { display: flex; flex-wrap: wrap; gap: 1.5rem } figure { margin: 1rem 0; overflow-x: auto }
figcaption { font-weight: 600 } small { font-weight: 400; color: #5a6472 }
svg text { font-size: 11px; fill: #5a6472 }
</style></head><body>
<h1>Quest fidelity: sparse attention beside full attention</h1>
<p>Columns are layers, rows are query heads. Dark red is the worst of a map, grey layers read
everything. Each cell tells its value when pointed at.</p>
)";

}  // namespace

std::span<const HeadFigure> head_figures() { return kFigures; }

bool is_sparse_layer(const eval::FidelityRun& run, std::int32_t layer) {
  for (std::int32_t h = 0; h < run.num_q_heads; ++h) {
    const eval::HeadFidelity& head = run.head(layer, h);
    if (head.page_share < static_cast<double>(head.tokens)) return true;
  }
  return false;
}

double sparse_mean(const eval::FidelityRun& run, const HeadFigure& figure) {
  double sum = 0;
  std::int64_t count = 0;
  for (std::int32_t layer = 0; layer < run.num_layers; ++layer) {
    if (!is_sparse_layer(run, layer)) continue;
    for (std::int32_t h = 0; h < run.num_q_heads; ++h, ++count) {
      sum += figure.value(run.head(layer, h));
    }
  }
  return count > 0 ? sum / static_cast<double>(count) : std::numeric_limits<double>::quiet_NaN();
}

std::string fidelity_html(const Json& facts, const eval::FidelityRun& teacher_forced,
                          const eval::FidelityRun& free_running) {
  std::string html = kHead;
  html += "<table>";
  for (const auto& [name, value] : facts.items()) {
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    html += "<tr><th>" + escaped(name) + "</th><td>" + escaped(text) + "</td></tr>";
  }
  html += "</table>\n";
  html += section("Teacher-forced: the text's own tokens", teacher_forced);
  html += section("Free-running: the tokens that the sparse path writes", free_running);
  return html + "</body></html>\n";
}

}  // namespace quest::cli
