// Copyright 2026 The Quest authors. SPDX-License-Identifier: Apache-2.0
#include "quest/model.h"

#include "model/weights.h"

namespace quest {

Model::Model() = default;
Model::~Model() = default;

std::shared_ptr<const Model> Model::load(const std::string& path, const ModelOptions& options) {
  std::shared_ptr<Model> model(new Model);
  model->weights_ = std::make_unique<ModelWeights>(path, options);
  model->tokenizer_ = std::make_unique<Tokenizer>(path);
  return model;
}

const ModelInfo& Model::info() const { return weights_->info; }
const Tokenizer& Model::tokenizer() const { return *tokenizer_; }

}  // namespace quest
