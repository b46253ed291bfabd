//! Grids: how many groups of work items a launch of a compiled kernel has.

use syncline_tensor::View;

use super::KernelSource;
use crate::DeviceError;

/// The most groups along x that every device allows: work counted in one dimension continues along
/// y beyond.
pub const GROUPS_ALONG_X: u32 = 65_535;

/// A rule that says how many groups a launch has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Grid {
    /// As many as the dispatch says.
    #[default]
    Given,
    /// A single group.
    One,
    /// One work item for each element of argument `arg`, folded into x and y.
    Elements {
        /// The argument.
        arg: usize,
    },
    /// One group for each row (along the last dimension) of argument `arg`, folded into x and y.
    Rows {
        /// The argument.
        arg: usize,
    },
    /// One group for each tile of the last two dimensions of argument `arg`: columns of tiles along
    /// x, rows along y, matrices along z.
    Tiles {
        /// The argument.
        arg: usize,
        /// Rows of a tile.
        rows: u32,
        /// Columns of a tile.
        columns: u32,
    },
}

impl KernelSource {
    /// The groups of a launch on `views`, along each dimension. Where one is zero there is nothing
    /// to launch.
    ///
    /// ```
    /// use syncline_tensor::{Dtype, View};
    /// use syncline_device::{Grid, KernelSource};
    ///
    /// let source = KernelSource::wgsl("...", "main", [64, 1, 1]).grid(Grid::Elements { arg: 0 });
    /// let view = View::contiguous(Dtype::F32, &[10, 13])?;
    /// assert_eq!(source.groups(&[view], [1; 3])?, [3, 1, 1]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A rule for an argument that is not there, or more groups than devices can count.
    pub fn groups(&self, views: &[View], given: [u32; 3]) -> Result<[u32; 3], DeviceError> {
        let view = |arg: usize| {
            views.get(arg).ok_or_else(|| DeviceError::BadArgument {
                arg,
                message: format!("the grid follows it; there are {} arguments", views.len()),
            })
        };
        let (arg, groups) = match self.grid {
            Grid::Given => return Ok(given),
            Grid::One => return Ok([1; 3]),
            Grid::Elements { arg } => {
                let items: u64 =
                    self.group().iter().map(|&items| u64::from(items.max(1))).product();
                (arg, folded(view(arg)?.elements().div_ceil(items)))
            }
            Grid::Rows { arg } => {
                let shape = view(arg)?.shape();
                (arg, folded(product(&shape[..shape.len().saturating_sub(1)])))
            }
            Grid::Tiles { arg, rows, columns } => {
                let (matrices, [height, width]) = matrices(view(arg)?.shape());
                let across = width.div_ceil(columns.max(1).into());
                (arg, [across, height.div_ceil(rows.max(1).into()), matrices])
            }
        };
        let limits = [u32::MAX, GROUPS_ALONG_X, GROUPS_ALONG_X].map(u64::from);
        if groups.iter().zip(limits).any(|(&groups, limit)| groups > limit) {
            let message = format!("{groups:?} groups: at most {limits:?} can be launched");
            return Err(DeviceError::BadArgument { arg, message });
        }
        Ok(groups.map(|groups| groups as u32))
    }
}

/// As many as there are, or more than can be counted.
fn product(sizes: &[u64]) -> u64 {
    sizes.iter().fold(1, |product, &size| product.saturating_mul(size))
}

/// A count of groups as x and y.
fn folded(groups: u64) -> [u64; 3] {
    let along_x = groups.min(GROUPS_ALONG_X.into());
    [along_x, groups.div_ceil(along_x.max(1)).max(u64::from(groups > 0)), 1]
}

/// The number of matrices in a shape, and the height and width of each.
fn matrices(shape: &[u64]) -> (u64, [u64; 2]) {
    match shape {
        [] => (1, [1, 1]),
        [width] => (1, [1, *width]),
        [rest @ .., height, width] => (product(rest), [*height, *width]),
    }
}

#[cfg(test)]
mod tests {
    use syncline_tensor::Dtype;

    use super::*;

    fn groups(grid: Grid, shape: &[u64]) -> Result<[u32; 3], DeviceError> {
        // All elements in one place: shapes far beyond any memory.
        let view = View::strided(Dtype::U8, 0, shape, &vec![0; shape.len()]).unwrap();
        KernelSource::wgsl("", "main", [16, 4, 1]).grid(grid).groups(&[view], [7, 8, 9])
    }

    #[test]
    fn every_rule_covers_its_argument() {
        let elements = Grid::Elements { arg: 0 };
        assert_eq!(groups(Grid::Given, &[5]).unwrap(), [7, 8, 9]);
        assert_eq!(groups(Grid::One, &[5]).unwrap(), [1, 1, 1]);
        assert_eq!(groups(elements, &[]).unwrap(), [1, 1, 1]);
        assert_eq!(groups(elements, &[65, 2]).unwrap(), [3, 1, 1]);
        assert_eq!(groups(Grid::Rows { arg: 0 }, &[3, 5, 7]).unwrap(), [15, 1, 1]);
        assert_eq!(groups(Grid::Rows { arg: 0 }, &[]).unwrap(), [1, 1, 1]);
        let tiles = Grid::Tiles { arg: 0, rows: 16, columns: 32 };
        assert_eq!(groups(tiles, &[2, 3, 33, 33]).unwrap(), [2, 3, 6]);
    }

    #[test]
    fn nothing_gives_no_group() {
        for grid in [
            Grid::Elements { arg: 0 },
            Grid::Rows { arg: 0 },
            Grid::Tiles { arg: 0, rows: 8, columns: 8 },
        ] {
            assert!(groups(grid, &[0, 4]).unwrap().contains(&0), "{grid:?}");
        }
    }

    #[test]
    fn many_groups_continue_along_y() {
        let count = 64 * 65_535 * 3 + 1;
        let found = groups(Grid::Elements { arg: 0 }, &[count]).unwrap();
        assert_eq!(found, [65_535, 4, 1]);
        assert!(groups(Grid::Elements { arg: 0 }, &[1 << 40]).is_err());
        assert!(groups(Grid::Elements { arg: 1 }, &[1]).is_err());
    }
}
