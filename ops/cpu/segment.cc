#include "segment.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "threads.h"

namespace lynx {
namespace {

struct Sizes {
  size_t anchor;
  size_t residual;
};

// Offsets within a segment whose tiles are all regular.
class Layout {
 public:
  Layout(const Coding& coding, const Segment& segment, Dtype dtype)
      : coding_(coding), segment_(segment), dtype_(dtype) {
    coded = segment.coded;
    pages = (segment.tokens + coding.page - 1) / coding.page;
    tiles = (coded + coding.page - 1) / coding.page;
    flags = (pages + 63) / 64 * 64;
    row = coding.dim * ItemSize(dtype);
    exact = segment.sinks + segment.tokens - coded;
    for (size_t head = 0; head < coding.heads.size(); ++head) {
      anchors_.push_back(size.anchor);
      residuals_.push_back(size.residual);
      size.anchor += flags + exact * row;
      for (int64_t page = 0; page < tiles; ++page) {
        const Tile tile = TileAt(head, page);
        size.anchor += tile.AnchorBytes();
        size.residual += tile.ResidualBytes();
      }
    }
  }

  Tile TileAt(size_t head, int64_t page) const {
    const int64_t tokens = std::min<int64_t>(coding_.page, coded - page * coding_.page);
    return {coding_.tables.get(), &coding_.heads[head], dtype_,       static_cast<int>(tokens), coding_.dim,
            coding_.chunk,        coding_.token_scale,  coding_.mean, coding_.has_residual};
  }

  size_t Flags(size_t head) const { return anchors_[head]; }
  size_t Exact(size_t head) const { return anchors_[head] + flags; }
  // All tiles before a page are whole.
  size_t AnchorAt(size_t head, int64_t page) const {
    return Exact(head) + exact * row + (page ? page * TileAt(head, 0).AnchorBytes() : 0);
  }
  size_t ResidualAt(size_t head, int64_t page) const {
    return residuals_[head] + (page ? page * TileAt(head, 0).ResidualBytes() : 0);
  }

  Sizes size{0, 0};
  int64_t coded, pages, tiles, flags, exact;
  size_t row;

 private:
  const Coding& coding_;
  const Segment& segment_;
  Dtype dtype_;
  std::vector<size_t> anchors_, residuals_;
};

// Nothing is read or written before this: from here on what the kernels index with is in range, whoever filled the table.
void Check(const Coding& coding, const Pages& pages, const Segment& segment) {
  if (coding.heads.empty() || coding.dim < 1) throw std::invalid_argument("a plane needs heads and channels");
  if (coding.chunk < kGroup || coding.chunk % kGroup || coding.page < coding.chunk || coding.page % coding.chunk) {
    throw std::invalid_argument("chunks are multiples of 8 and divide the page");
  }
  if (segment.start < 0 || segment.tokens < 1 || pages.block_size < 1) {
    throw std::invalid_argument("a segment needs tokens and blocks");
  }
  if (segment.coded < 0 || segment.coded > segment.tokens || segment.coded % kGroup) {
    throw std::invalid_argument("coded tokens are some of the segment's, in groups of 8");
  }
  if (segment.sinks < 0 || (segment.sinks && segment.sinks >= std::min<int64_t>(segment.coded, coding.page))) {
    throw std::invalid_argument("sinks stand in the first tile, before others");
  }
  if (segment.tokens > std::numeric_limits<int64_t>::max() - segment.start) {
    throw std::invalid_argument("the segment ends beyond all numbers");
  }
  const int64_t first = segment.start / pages.block_size;
  const int64_t last = (segment.start + segment.tokens - 1) / pages.block_size;
  if (last >= pages.table_size) throw std::invalid_argument("the block table is shorter than the segment");
  for (int64_t i = first; i <= last; ++i) {
    if (pages.table[i] < 0 || pages.table[i] >= pages.blocks) {
      throw std::invalid_argument("the block table names a block that is not there");
    }
  }
  if (pages.packing != nullptr && pages.packing->size != pages.block_size * coding.dim) {
    throw std::invalid_argument("the packing is that of other blocks");
  }
}

// No encoder writes another gamma; the kernels need not know what a NaN rounds to.
bool FiniteScales(const uint8_t* tile, int dim) {
  for (int i = 0; i < 2 * dim; ++i) {
    if ((tile[2 * i + 1] & 0x7C) == 0x7C) return false;
  }
  return true;
}

struct Worker {
  Scratch scratch;
  std::vector<void*> rows, next;
  std::vector<uint8_t> packed;
};

// Calls work(i, worker) for i in [0, count) on at most `threads` threads. A worker is its thread's, from call to call.
template <class Work>
void Share(int64_t count, int threads, const Work& work) {
  std::atomic<int64_t> next{0};
  OnThreads(static_cast<int>(std::min<int64_t>(threads, count)), [&] {
    thread_local Worker worker;
    for (int64_t i; (i = next.fetch_add(1)) < count;) work(i, worker);
  });
}

}  // namespace

bool EncodeSegment(const Coding& coding, const Pages& pages, const Segment& segment, uint8_t* anchor,
                   size_t anchor_size, uint8_t* residual, size_t residual_size, int threads) {
  Check(coding, pages, segment);
  const Layout layout(coding, segment, pages.dtype);
  if (layout.size.anchor != anchor_size || layout.size.residual != residual_size) {
    throw std::invalid_argument("the streams do not have the segment's size");
  }
  const Rows rows(pages, segment.start, coding.dim);
  const int64_t heads = static_cast<int64_t>(coding.heads.size());
  std::vector<uint8_t> exact(layout.exact * layout.row);
  for (int64_t head = 0; head < heads; ++head) {
    std::memset(anchor + layout.Flags(head), 0, layout.flags);
    rows.Read(head, 0, segment.sinks, exact.data());
    rows.Read(head, layout.coded, segment.tokens - layout.coded, exact.data() + segment.sinks * layout.row);
    std::copy(exact.begin(), exact.end(), anchor + layout.Exact(head));
  }
  std::atomic<bool> raw{false};
  // The heads of a page one after the other, here and below: their rows are neighbours, in the same pages of memory.
  Share(layout.tiles * heads, threads, [&](int64_t i, Worker& worker) {
    if (raw.load(std::memory_order_relaxed)) return;
    const int64_t head = i % heads, page = i / heads, first = page * coding.page;
    const Tile tile = layout.TileAt(head, page);
    worker.rows.resize(tile.tokens);
    void** next = nullptr;
    if (rows.Direct()) {
      rows.Fill(head, first, tile.tokens, worker.rows.data());
      const int64_t after = i + std::max(1, threads);
      if (after < layout.tiles * heads &&
          layout.TileAt(after % heads, after / heads).tokens >= tile.tokens) {
        worker.next.resize(tile.tokens);
        next = worker.next.data();
        rows.Fill(after % heads, after / heads * coding.page, tile.tokens, next);
      }
    } else {
      worker.packed.resize(tile.tokens * layout.row);
      for (int64_t t = 0; t < tile.tokens; ++t) {
        worker.rows[t] = worker.packed.data() + t * layout.row;
      }
      rows.Read(head, first, tile.tokens, worker.packed.data());
    }
    if (page == 0) {  // sinks stand in their tile as copies of the first row that is none
      std::fill(worker.rows.begin(), worker.rows.begin() + segment.sinks, worker.rows[segment.sinks]);
    }
    if (!EncodeTile(tile, worker.rows.data(), next, anchor + layout.AnchorAt(head, page),
                    residual + layout.ResidualAt(head, page), worker.scratch)) {
      raw = true;
    }
  });
  return !raw;
}

bool DecodeSegment(const Coding& coding, const Pages& pages, const Segment& segment, int64_t skip,
                   const uint8_t* anchor, size_t anchor_size, const uint8_t* residual, size_t residual_size,
                   int threads) {
  Check(coding, pages, segment);
  const Layout layout(coding, segment, pages.dtype);
  if (layout.size.anchor != anchor_size) return false;
  if (residual != nullptr && layout.size.residual != residual_size) return false;
  const int64_t heads = static_cast<int64_t>(coding.heads.size());
  for (int64_t head = 0; head < heads; ++head) {
    const uint8_t* flags = anchor + layout.Flags(head);
    if (std::any_of(flags, flags + layout.flags, [](uint8_t flag) { return flag != 0; })) return false;
  }
  for (int64_t i = 0; i < layout.tiles * heads; ++i) {
    if (!FiniteScales(anchor + layout.AnchorAt(i / layout.tiles, i % layout.tiles), coding.dim)) return false;
  }
  const Rows rows(pages, segment.start, coding.dim);
  std::vector<uint8_t> exact(layout.exact * layout.row);
  const int64_t first_sink = std::min(skip, segment.sinks);
  const int64_t first_last = std::min(std::max(skip, layout.coded), segment.tokens);
  for (int64_t head = 0; head < heads; ++head) {
    std::copy_n(anchor + layout.Exact(head), exact.size(), exact.begin());
    rows.Write(head, first_sink, segment.sinks - first_sink, exact.data() + first_sink * layout.row);
    rows.Write(head, first_last, segment.tokens - first_last,
               exact.data() + (segment.sinks + first_last - layout.coded) * layout.row);
  }
  Share(layout.tiles * heads, threads, [&](int64_t i, Worker& worker) {
    const int64_t head = i % heads, page = i / heads, first = page * coding.page;
    const Tile tile = layout.TileAt(head, page);
    const int64_t from = std::max(skip, page == 0 ? segment.sinks : 0);  // exact rows and shared blocks keep theirs
    if (from >= first + tile.tokens) return;
    worker.rows.resize(tile.tokens);
    worker.packed.resize((rows.Direct() ? 1 : tile.tokens) * layout.row);
    const int64_t dropped = std::max<int64_t>(0, from - first);
    if (rows.Direct()) {
      std::fill(worker.rows.begin(), worker.rows.begin() + dropped, worker.packed.data());
      rows.Fill(head, first + dropped, tile.tokens - dropped, worker.rows.data() + dropped);
    } else {
      for (int64_t t = 0; t < tile.tokens; ++t) worker.rows[t] = worker.packed.data() + t * layout.row;
    }
    DecodeTile(tile, anchor + layout.AnchorAt(head, page),
               residual == nullptr ? nullptr : residual + layout.ResidualAt(head, page), worker.rows.data(),
               rows.Direct(), worker.scratch);
    if (rows.Direct()) return;
    int64_t written = dropped;
    if (page == 0 && skip == 0) {  // then its first block can be written as a whole
      std::copy_n(anchor + layout.Exact(head), segment.sinks * layout.row, worker.packed.data());
      written = 0;
    }
    rows.Write(head, first + written, tile.tokens - written, worker.packed.data() + written * layout.row);
  });
  return true;
}

}  // namespace lynx
