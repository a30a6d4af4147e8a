package qr

import (
	"encoding/hex"
	"errors"
	"fmt"
)

// The bounds of Options, which the API documents.
const (
	MinSize       = 64
	MaxSize       = 2048
	DefaultSize   = 512
	MaxMargin     = 16
	DefaultMargin = 4 // the quiet zone of ISO/IEC 18004
)

// Options define an image. Start from Defaults: the zero value is out of bounds.
type Options struct {
	Size       int // width and height, MinSize to MaxSize pixels
	Level      Level
	Margin     int // quiet zone on each side, 0 to MaxMargin modules
	Foreground Color
	Background Color
}

// Defaults returns black on white, 512 pixels, level M, with the standard's quiet zone.
func Defaults() Options {
	return Options{
		Size:       DefaultSize,
		Level:      Medium,
		Margin:     DefaultMargin,
		Background: Color{0xff, 0xff, 0xff},
	}
}

// ErrOptions is returned for options out of their bounds.
var ErrOptions = errors.New("option out of bounds")

func (o Options) check() error {
	switch {
	case o.Size < MinSize || o.Size > MaxSize:
		return fmt.Errorf("%w: size %d", ErrOptions, o.Size)
	case o.Margin < 0 || o.Margin > MaxMargin:
		return fmt.Errorf("%w: margin %d", ErrOptions, o.Margin)
	case !o.Level.valid():
		return fmt.Errorf("%w: level %q", ErrOptions, o.Level)
	}
	return nil
}

// Level is how much of an image may be damaged, by the letters of the standard.
type Level string

// The levels, with the share of damage they recover from.
const (
	Low      Level = "L" // 7 %
	Medium   Level = "M" // 15 %
	Quartile Level = "Q" // 25 %
	High     Level = "H" // 30 %
)

// ParseLevel reads L, M, Q or H.
func ParseLevel(s string) (Level, bool) {
	level := Level(s)
	return level, level.valid()
}

func (l Level) valid() bool {
	return l == Low || l == Medium || l == Quartile || l == High
}

// Color is red, green and blue.
type Color [3]byte

// ParseColor reads six hexadecimal digits, in either case.
func ParseColor(s string) (Color, bool) {
	var c Color
	if len(s) != 2*len(c) {
		return Color{}, false
	}
	if _, err := hex.Decode(c[:], []byte(s)); err != nil {
		return Color{}, false
	}
	return c, true
}

// String returns the six hexadecimal digits.
func (c Color) String() string {
	return hex.EncodeToString(c[:])
}
