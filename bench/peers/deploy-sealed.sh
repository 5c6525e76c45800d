#!/usr/bin/env bash
# Deploys under the proposed hub contract, as an operator's script would. Variables: HUB_URL, SLUG, API_KEY,
# DEPLOYMENT_CREDENTIAL, SIGNER_PUBLIC_KEY (base64), PROJECT_ROOT, WORK (an empty folder), and NODE. NODE runs
# decrypt.mjs, because openssl's command line cannot decrypt AES-GCM.
set -euo pipefail

plugins=$PROJECT_ROOT/plugins
staging=$PROJECT_ROOT/.staging
started=$(date -u +%FT%TZ)
mkdir -p "$plugins" "$staging"

field() {
  sed -n "s/.*\"$1\" *: *\"\([^\"]*\)\".*/\1/p"
}

call() {
  curl -fsS -H 'Content-Type: application/json' ${token:+-H "Authorization: Bearer $token"} "$HUB_URL/v1/$1" "${@:2}"
}

token=$(call auth -d "{\"xdevkey\":\"$API_KEY\",\"project_id\":\"$SLUG\"}" | field access_token)
version=$(call "projects/$SLUG/versions/latest" | field version)
descriptor=$(call "projects/$SLUG/artifacts/$version")
[ "$(field signer_public_key <<<"$descriptor")" = "$SIGNER_PUBLIC_KEY" ]
signature=$(field signature <<<"$descriptor")
curl -fsS -o "$WORK/sealed" "$(field download_url <<<"$descriptor")"

# The DER of an Ed25519 key is this prefix, then the raw key.
{ printf '\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00'; base64 -d <<<"$SIGNER_PUBLIC_KEY"; } >"$WORK/key"
base64 -d <<<"$signature" >"$WORK/signature"
openssl pkeyutl -verify -rawin -pubin -keyform DER -inkey "$WORK/key" -sigfile "$WORK/signature" -in "$WORK/sealed" >"$WORK/verdict"

dek=$(call deployments/authorize \
  -d "{\"deployment_credential\":\"$DEPLOYMENT_CREDENTIAL\",\"artifact_signature\":\"$signature\"}" | field dek)
DEK=$dek "$NODE" "$(dirname "$0")/decrypt.mjs" "$WORK/sealed" "$WORK/opened.tar.zst"
zstd -dqc "$WORK/opened.tar.zst" | tar -x -C "$staging"

if [ -e "$plugins/$SLUG" ]; then
  mv "$plugins/$SLUG" "$PROJECT_ROOT/.previous"
fi
mv "$staging/plugins/$SLUG" "$plugins/$SLUG"
rm -r "$staging" "$WORK/sealed" "$WORK/opened.tar.zst"
sync -f "$plugins"

call deployments/report -o "$WORK/answer" -d "{\"project_id\":\"$SLUG\",\"deployment_id\":\"$(cat /proc/sys/kernel/random/uuid)\",\"status\":\"success\",\"version\":\"$version\",\"started_at\":\"$started\",\"completed_at\":\"$(date -u +%FT%TZ)\",\"plugins\":[{\"id\":\"$SLUG\",\"version\":\"$version\"}]}"
