import { hash } from 'node:crypto'

const SHA256 = hash('sha256', 'x')

/** A manifest as a packer writes it, with one plugin `cart` and one extension `search`, changed by `more`. */
export function manifestWith(more: object = {}): Record<string, unknown> {
  return {
    format_version: '1',
    project_id: 'shop',
    project_name: 'The shop',
    version: '1.4.0',
    built_at: '2026-01-02T03:04:05Z',
    plugins: [{ id: 'cart', version: '2.0.0', sha256: SHA256 }],
    extensions: [{ id: 'search', sha256: SHA256 }],
    content_sha256: SHA256,
    ...more,
  }
}
