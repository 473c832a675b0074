#include "kernels/cuda/launches.hpp"

namespace kvroof::cuda {

void Launches::begin(LaunchMeaning& meaning, const DeclaredWork* of_step) {
  meaning.sequence = sequence_;
  if (of_step != nullptr) meaning.declared = *of_step;
  if (noting_ != nullptr) {
    noting_->noted.push_back({meaning, of_step});
  } else {
    counters_ += meaning.declared.bytes;
  }
  if (observer_ != nullptr) observer_->begin_launch(meaning);
}

void Launches::make(const Train& train) {
  std::vector<LaunchMeaning> meanings;
  for (const Train::Noted& noted : train.noted) {
    counters_ += noted.of_step != nullptr ? noted.of_step->bytes : noted.meaning.declared.bytes;
    if (observer_ == nullptr) continue;
    meanings.push_back(noted.meaning);
    if (noted.of_step != nullptr) meanings.back().declared = *noted.of_step;
  }
  if (observer_ != nullptr) observer_->begin_train_launch(meanings);
  train.launches.run(stream_);
  if (observer_ != nullptr) observer_->end_launch();
}

}  // namespace kvroof::cuda
