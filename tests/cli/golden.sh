#!/usr/bin/env bash
# golden.sh PROGRAM COMPARE: checkpoints whose outputs and gradients the original code has computed, tensor by tensor.
# shellcheck disable=SC2317 # functions are called by their names
set -euo pipefail
program=$(realpath -- "$1")
compare=$(realpath -- "$2")
data=${NH_TEST_DATA:-$(dirname -- "$(realpath -- "$0")")/../data}/golden
scratch=$PWD
# shellcheck source=tests/tap.sh
. "$(dirname -- "$(realpath -- "$0")")/../tap.sh"

# agrees FOLDER
agrees() {
    local name
    name=$(basename -- "$1")
    for dtype in fp64 fp32; do
        run 0 --model "$1" --data "tokens:$1/tokens.txt" --dtype "$dtype" --dump "$name-$dtype" --out "$name/$dtype" || return
    done
    "$compare" "$1" "$name-fp64" "$name-fp32"
}

for folder in "$data"/*/; do
    check "$(basename -- "$folder")" agrees "${folder%/}"
done

# as the published gpt2 has them: no prefix, masks beside the weights
unprefixed() {
    mkdir gpt2
    cp -- "$data/gpt2-tiny/config.json" gpt2
    python3 - "$data/gpt2-tiny/model.safetensors" gpt2/model.safetensors <<'EOF'
import json, struct, sys
raw = open(sys.argv[1], 'rb').read()
n = struct.unpack('<Q', raw[:8])[0]
header = {k.removeprefix('transformer.'): v for k, v in json.loads(raw[8:8 + n]).items()}
end = len(raw) - 8 - n
for layer in range(4):
    header[f'h.{layer}.attn.bias'] = {'dtype': 'BOOL', 'shape': [1, 1, 4, 4], 'data_offsets': [end, end + 16]}
    end += 16
text = json.dumps(header).encode()
open(sys.argv[2], 'wb').write(struct.pack('<Q', len(text)) + text + raw[8 + n:] + bytes(64))
EOF
    run 0 --model gpt2 --data "tokens:$data/gpt2-tiny/tokens.txt" --dtype fp64 --dump plain --out out-plain || return
    python3 - plain gpt2-tiny-fp64 <<'EOF'
import json, struct, sys
def read(path):
    raw = open(path, 'rb').read()
    n = struct.unpack('<Q', raw[:8])[0]
    return {k.replace('transformer.', ''): raw[8 + n + v['data_offsets'][0]:8 + n + v['data_offsets'][1]] for k, v in json.loads(raw[8:8 + n]).items()}
assert read(sys.argv[1]) == read(sys.argv[2])
EOF
}
check 'GPT-2 without a prefix, with masks' unprefixed
done_testing
