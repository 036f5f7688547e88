//! Each key is described once, in the file of its section: meaning, type, default, accepted values, other names. From
//! that come the struct, the table that files and flags are checked with, `configs/default.yaml` and the reference.

/// A section: a struct, and the table of its keys. A key reads
///
/// ```text
/// /// its meaning, as the comment in default.yaml and in the reference
/// name: Type = default, in accepted, also "older_name", flag "--flag";
/// ```
///
/// and all but meaning, name and type may be missing: the default is then the type's own, the accepted values are those
/// of the type ([`Setting`](super::accept::Setting)), the flag is `--` and the name with dashes. A default may read what
/// was given for other keys, by the name behind `from`.
macro_rules! section {
    (
        $(#[$attribute:meta])*
        pub struct $section:ident from $given:ident {
            $(
                $(#[doc = $meaning:literal])+
                $name:ident: $kind:ty $(= $default:expr)? $(, in $accepts:expr)? $(, also $alias:literal)* $(, flag $flag:literal)?;
            )+
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize)]
        pub struct $section {
            $($(#[doc = $meaning])+ pub $name: $kind,)+
        }

        impl $section {
            /// What is given, and defaults for the rest.
            pub(super) fn resolve($given: &super::layer::Layer) -> Self {
                Self { $($name: $given.get(stringify!($name)).unwrap_or_else(|| section!(@default $($default)?)),)+ }
            }

            pub(super) fn keys() -> Vec<super::keys::Key> {
                vec![$(
                    super::keys::Key {
                        aliases: &[$($alias),*],
                        $(flag: Some($flag),)?
                        ..super::keys::Key::new::<$kind>(
                            stringify!($name),
                            concat!($($meaning),+),
                            section!(@accepts $kind $(, $accepts)?),
                        )
                    },
                )+]
            }
        }
    };
    (@default) => { Default::default() };
    (@default $default:expr) => { $default };
    (@accepts $kind:ty) => { <$kind as super::accept::Setting>::accepts() };
    (@accepts $kind:ty, $accepts:expr) => { super::accept::Accepts::from($accepts) };
}

/// An enum whose variants, in kebab case, are what a key and its flag accept.
macro_rules! choices {
    ($(#[$attribute:meta])* pub enum $name:ident { $($variants:tt)+ }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, clap::ValueEnum)]
        #[serde(rename_all = "kebab-case")]
        pub enum $name { $($variants)+ }

        impl super::accept::Setting for $name {
            fn accepts() -> super::accept::Accepts {
                super::accept::one_of::<Self>()
            }
        }
    };
}

pub(super) use {choices, section};
