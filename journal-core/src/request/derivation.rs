//! The macro that derives everything from the table in [`super::opcode`].

/// One row: `code Variant constructor "symbol" Class [stage 1, stage 2] (arguments) -> result;`
///
/// An argument is `direction name: Type`, where direction is
/// - `in`: given by the caller; must be equal to match;
/// - `take`: like `in`, and the call uses the handle up;
/// - `note`: like `in`, but may differ (host addresses);
/// - `out`: given back, but known (reserved) before the call, and recorded.
///
/// A result is known only after the call and is kept in the record's result word.
macro_rules! requests {
    ($(
        $(#[$meta:meta])*
        $code:literal $variant:ident $constructor:ident $symbol:literal $class:ident [$stage1:expr, $stage2:expr]
        ($($dir:tt $arg:ident: $ty:ident),*) $(-> $result:ident: $result_ty:ident)?;
    )*) => {
        /// Number of an API. It is the kind of a record; numbers are never reused.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u16)]
        pub enum OpCode {
            $($(#[$meta])* #[doc = concat!("`", $symbol, "`.")] $variant = $code,)*
        }

        impl OpCode {
            /// All of them, in order of number.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The row of a record's kind; every number from 0x8000 on is a user request.
            pub fn from_code(code: u16) -> Option<Self> {
                match code {
                    $($code => Some(Self::$variant),)*
                    0x8000.. => Some(Self::User),
                    _ => None,
                }
            }

            /// What the table says about it.
            #[inline]
            pub const fn row(self) -> &'static Row {
                match self {
                    $(Self::$variant => {
                        const ROW: &Row = &Row {
                            opcode: OpCode::$variant,
                            name: $symbol,
                            constructor: stringify!($constructor),
                            args: &placed([
                                $(argument!($dir $arg $ty),)*
                                $(argument!(result $result $result_ty),)?
                            ]),
                            class: Class::$class,
                            replay: ($stage1, $stage2),
                        };
                        ROW
                    })*
                }
            }
        }

        /// A request with its arguments by name: what an executor matches on.
        #[derive(Debug, Clone, Copy, PartialEq)]
        #[allow(missing_docs)]
        pub enum Call<'a> {
            $($(#[$meta])* $variant { $($arg: <mark::$ty as Wire>::Value<'a>),* },)*
            #[doc(hidden)]
            __Lifetime(core::convert::Infallible, core::marker::PhantomData<&'a ()>),
        }

        impl<'a> Call<'a> {
            pub(super) fn of(request: &Request<'a>) -> Self {
                #[allow(unused_variables, unused_mut)]
                let mut cursor = Cursor::new(request);
                match request.op() {
                    $(OpCode::$variant => Self::$variant { $($arg: <mark::$ty as Wire>::take(&mut cursor)),* },)*
                }
            }

            /// The same as a request. (A user request's number is not part of its arguments: it becomes 0.)
            pub fn to_request(self) -> Request<'a> {
                match self {
                    $(Self::$variant { $($arg),* } => constructors::$constructor($($arg),*),)*
                    Self::__Lifetime(never, _) => match never {},
                }
            }
        }

        /// One constructor a row. Outputs that are reserved before the call are arguments too.
        pub mod constructors {
            #![allow(clippy::too_many_arguments)]
            use super::*;
            $(
                $(#[$meta])*
                #[doc = concat!("A `", $symbol, "` request.")]
                #[inline]
                pub fn $constructor<'a>($($arg: <mark::$ty as Wire>::Value<'a>),*) -> Request<'a> {
                    #[allow(unused_mut)]
                    let mut request = Request::empty(OpCode::$variant);
                    $(<mark::$ty as Wire>::put($arg, &mut request);)*
                    request.with_lengths()
                }
            )*
        }
    };
}

macro_rules! argument {
    (in $name:ident $ty:ident) => { argument!(@ $name $ty In false Identity Slot::Word(0)) };
    (take $name:ident $ty:ident) => { argument!(@ $name $ty In true Identity Slot::Word(0)) };
    (note $name:ident $ty:ident) => { argument!(@ $name $ty In false Ignore Slot::Word(0)) };
    (out $name:ident $ty:ident) => { argument!(@ $name $ty Out false Ignore Slot::Word(0)) };
    (result $name:ident $ty:ident) => { argument!(@ $name $ty Out false Ignore Slot::Result) };
    (@ $name:ident $ty:ident $direction:ident $consumed:literal $matching:ident $slot:expr) => {
        Arg {
            name: stringify!($name),
            direction: Direction::$direction,
            ty: <mark::$ty as Wire>::TYPE,
            consumed: $consumed,
            matching: Matching::$matching,
            slot: $slot,
        }
    };
}

pub(super) use {argument, requests};
