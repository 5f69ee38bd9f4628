//! A picture of one colour, for asking a server whether it takes pictures at all: 64 by 64 pixels, since some image processors
//! refuse anything smaller than 28.

/// The picture as an inline PNG.
pub const DATA_URI: &str = concat!(
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAIAAAAlC+aJAAAAS0lEQVR42u3PQQkAAAgAsetfWiP4FgYrsKZeS0BAQE",
    "BAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEDgsqnc8OJg6Ln3AAAAAElFTkSuQmCC"
);

/// The word for its colour.
pub const COLOUR: &str = "red";
