//! Structs that count events, and their sums.

/// Defines a struct of counts. A sum of two adds each field, or joins it by the function after the
/// field's name.
macro_rules! counts {
    (@join $one:expr, $other:expr) => {
        $one + $other
    };
    (@join $one:expr, $other:expr, $join:expr) => {
        $join($one, $other)
    };
    ($(#[$about:meta])* $name:ident { $($(#[$what:meta])* $field:ident $(by $join:expr)?,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
        pub struct $name {
            $($(#[$what])* pub $field: u64,)*
        }

        impl std::ops::AddAssign for $name {
            fn add_assign(&mut self, other: $name) {
                $(self.$field = $crate::counts::counts!(@join self.$field, other.$field $(, $join)?);)*
            }
        }
    };
}
pub(crate) use counts;
