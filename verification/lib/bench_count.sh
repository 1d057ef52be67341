# shellcheck shell=bash
# T9: `taskstats count` beside GNU wc and beside only reading, on files that are in memory already. Source it.

# shellcheck source-path=SCRIPTDIR source=bench_limits.sh
source "$(dirname "${BASH_SOURCE[0]}")/bench_limits.sh"

# Set by bench.sh: MiB of the large text, and how many small files.
large_mebibytes=
small_files=

load=$target/release/examples/load

# Bytes of a small file, about.
small_file_size=4096

# Scripts of one, two, three and four bytes a character, short and long words.
sentences="The quick brown fox jumps over the lazy dog, and nobody knows why it does so again and again.
Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich; daß es regnet, stört keinen.
Le cœur déçu mais l'âme plutôt naïve, Louÿs rêva de crapaüter en canoë au delà des îles.
Съешь же ещё этих мягких французских булок, да выпей чаю, пока он не остыл совсем.
Ξεσκεπάζω την ψυχοφθόρα βδελυγμία, και κανείς δεν ξέρει γιατί.
דג סקרן שט בים מאוכזב ולפתע מצא חברה
صِف خَلقَ خَودِ كَمِثلِ الشَمسِ إِذ بَزَغَت
天地玄黃 宇宙洪荒 日月盈昃 辰宿列張 寒來暑往 秋收冬藏
いろはにほへと ちりぬるを わかよたれそ つねならむ うゐのおくやま けふこえて
키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다
ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश
A few signs beyond: 🦊 🐕 𝔉𝔯𝔞𝔨𝔱𝔲𝔯 𝄞 🌍
one two three four five six seven eight nine ten 0 1 2 3 4 5 6 7 8 9"

# The same texts each time, in an order that no branch predictor learns by heart.
make_texts() {
  local block=$scratch/block number
  say "building texts: $large_mebibytes MiB, and $small_files small files"
  shuffled_sentences >"$block"
  for ((number = 0; number < large_mebibytes / 16; number++)); do cat "$block"; done >"$scratch/large"
  sed -n "1,$(($(wc -l <"$block") * large_mebibytes / 1600))p" "$block" >"$scratch/part"
  mkdir "$scratch/small"
  # split has to know the size, so it cannot read a pipe.
  head -c $((small_files * small_file_size)) "$scratch/large" >"$scratch/few"
  truncate --size "-$(tail -n 1 "$scratch/few" | wc -c)" "$scratch/few"
  split --suffix-length 5 --numeric-suffixes --number "l/$small_files" "$scratch/few" "$scratch/small/x"
}

# 16 MiB less the rest of a line.
shuffled_sentences() {
  LC_ALL=C awk -v size=16777216 'BEGIN { srand(1) }
    { line[NR] = $0 }
    END {
      for (;;) {
        next_line = line[1 + int(rand() * NR)]
        written += length(next_line) + 1
        if (written > size) exit
        print next_line
      }
    }' <<<"$sentences"
}

measure_counting() {
  local large=$scratch/large bytes files
  bytes=$(stat --format %s "$large")
  cat "$large" >/dev/null
  record T9.large_wc "$(rate_of "$bytes" env LC_ALL=C.UTF-8 wc -wcm "$large")" MiB/s
  cp "$scratch/counted" "$scratch/by_wc"
  record T9.large "$(rate_of "$bytes" "$taskstats" count "$large")" MiB/s
  same_counts
  record T9.large_read "$(rate_of "$bytes" "$load" read "$large")" MiB/s
  record T9.large_memory "$(memory_of "$large")" MiB
  record T9.part_memory "$(memory_of "$scratch/part")" MiB
  files=("$scratch"/small/*)
  bytes=$(cat "${files[@]}" | wc -c)
  record T9.small_wc "$(rate_of "$bytes" env LC_ALL=C.UTF-8 wc -wcm "${files[@]}")" MiB/s
  record T9.small "$(rate_of "$bytes" "$taskstats" count "${files[@]}")" MiB/s
  record T9.small_read "$(rate_of "$bytes" "$load" read "${files[@]}")" MiB/s
}

# rate_of BYTES COMMAND...: MiB a second; what it said is in $scratch/counted.
rate_of() {
  local begin=${EPOCHREALTIME/[.,]/} end
  "${@:2}" >"$scratch/counted"
  end=${EPOCHREALTIME/[.,]/}
  awk -v bytes="$1" -v us=$((end - begin)) 'BEGIN { printf "%.0f\n", bytes / 1.048576 / us }'
}

# memory_of FILE: the most that counting it ever had resident, MiB.
memory_of() {
  /usr/bin/time --format %M --output "$scratch/time" "$taskstats" count "$1" >/dev/null
  awk '{ printf "%.1f\n", $1 / 1024 }' "$scratch/time"
}

# wc prints words, characters, bytes; taskstats words, bytes, runes. Words are not compared: wc has its own idea of them.
same_counts() {
  local characters bytes runes wc_bytes
  read -r _ characters wc_bytes _ <"$scratch/by_wc"
  read -r _ bytes runes _ <"$scratch/counted"
  [[ $characters == "$runes" && $bytes == "$wc_bytes" ]] ||
    fail "the counts differ: $(cat "$scratch/by_wc" "$scratch/counted")"
}
