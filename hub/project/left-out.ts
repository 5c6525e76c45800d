const FOLDERS_AND_FILES = new Set([
  '.git',
  '.hg',
  '.svn',
  '.gitmodules',
  'node_modules',
  '__pycache__',
  '.venv',
  'venv',
  '.tox',
  '.nox',
  '.mypy_cache',
  '.pytest_cache',
  '.ruff_cache',
  '.cache',
  '.ds_store',
  'thumbs.db',
  '.idea',
  '.vscode',
  '.ssh',
  '.gnupg',
  '.aws',
  '.azure',
  '.kube',
  '.docker',
  '.npmrc',
  '.yarnrc.yml',
  '.pypirc',
  '.netrc',
  '_netrc',
  '.pgpass',
  '.my.cnf',
  '.htpasswd',
  '.git-credentials',
  'credentials.json',
  'service-account.json',
  '.envrc',
])
const COMPILED = /\.py[co]$/
const KEY_FILE = /^id_(?:rsa|dsa|ecdsa|ed25519)|\.(?:pem|key|p8|p12|pfx|ppk|jks|keystore|kdbx)$/
const SETTINGS =
  /^\.env[.~]|\.env(?:~|\.bak|\.old|\.orig)?$|\.env\.(?:local|dev|development|test|staging|prod|production)$/
const TEMPLATE = /\.(?:template|example|sample|dist|tmpl)$/

/**
 * True if sealing leaves out every file or folder of this name, in upper or lower case. It leaves out version control,
 * installed dependencies, caches, settings with values (`.env`, `x.env`, but not their templates), private keys and the
 * credential files of common tools.
 */
export function isNeverSealed(name: string): boolean {
  const lower = name.toLowerCase()
  if (FOLDERS_AND_FILES.has(lower) || COMPILED.test(lower) || KEY_FILE.test(lower)) return true
  return SETTINGS.test(lower) && !TEMPLATE.test(lower)
}
