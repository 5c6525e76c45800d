import { execFileSync } from 'node:child_process'
import { basename, dirname } from 'node:path'
import AdmZip from 'adm-zip'
import { isInstalled } from './programs.ts'

/** Writes a ZIP with the folder as its only top-level directory, like a code host's archive. */
export function zipFolder(folder: string, zipPath: string): void {
  if (isInstalled('zip')) {
    execFileSync('zip', ['-q', '-r', '-6', zipPath, basename(folder)], { cwd: dirname(folder) })
  } else {
    const zip = new AdmZip()
    zip.addLocalFolder(folder, basename(folder))
    zip.writeZip(zipPath)
  }
}
