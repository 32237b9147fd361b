//! The catalog of a node's data set, brought here.

use super::{Client, unavailable};
use crate::catalog::Catalog;
use crate::{Error, Result};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The largest catalog that is fetched.
const CATALOG_BYTES_MAX: u64 = 64 << 30;

impl Client {
    /// The catalog of the node's data set, as a file in `folder`; one that is there already is not fetched again.
    pub async fn catalog(&self, folder: &Path) -> Result<PathBuf> {
        let Some(welcome) = self.welcome() else { return Err(self.shared.down()) };
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
        let name: String = welcome.name.chars().take(40).map(plain).collect();
        let path = folder.join(format!("{name}-{}.catalog", welcome.digest));
        let fits = |catalog: &Catalog| catalog.digest() == welcome.digest && catalog.verify().is_ok();
        if Catalog::open(&path).is_ok_and(|catalog| fits(&catalog)) {
            return Ok(path);
        }
        std::fs::create_dir_all(folder)
            .map_err(|e| Error::io("make the folder", folder.display(), e).hint("set catalog.folder"))?;
        let mut part = tempfile::NamedTempFile::new_in(folder)
            .map_err(|e| Error::io("write a catalog into", folder.display(), e))?;
        let total = welcome.catalog_bytes;
        if total > CATALOG_BYTES_MAX {
            return Err(Error::corrupt(format!("the node says that its catalog has {total} bytes")));
        }
        let mut from = 0;
        while from < total {
            let (said, bytes) = self.catalog_part(from).await?;
            if said != total || bytes.is_empty() {
                return Err(unavailable(self.url(), "its catalog changed while it was fetched"));
            }
            part.write_all(&bytes).map_err(|e| Error::io("write", path.display(), e))?;
            from += bytes.len() as u64;
        }
        // Checked before it gets its name, so that nobody ever opens half of it.
        if !Catalog::open(part.path()).is_ok_and(|catalog| fits(&catalog)) {
            let url = self.url();
            return Err(Error::corrupt(format!(
                "the catalog that came from {url} is not the one it promised"
            )));
        }
        part.persist(&path).map_err(|e| Error::io("write", path.display(), e.error))?;
        Ok(path)
    }
}
