// Package qr draws QR codes as SVG and PNG. Every module of an image is a square of the same whole number of pixels or
// units, so that all edges are straight.
package qr

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"strconv"

	"github.com/skip2/go-qrcode"
)

var (
	// ErrText is returned for a text that is empty or too long for the level.
	ErrText = errors.New("text does not fit into a QR code")
	// ErrSize is returned when the size gives a module of the code less than one pixel.
	ErrSize = errors.New("size is too small for the QR code of this text")
)

// SVG returns a square image of o.Size pixels in which one unit is one module: a background and one path, a run of dark
// modules at a time. The errors are ErrOptions and ErrText.
func SVG(text string, o Options) ([]byte, error) {
	modules, err := encode(text, o)
	if err != nil {
		return nil, err
	}
	side := len(modules) + 2*o.Margin
	var svg bytes.Buffer
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" `,
		o.Size, o.Size, side, side)
	svg.WriteString(`shape-rendering="crispEdges">`)
	fmt.Fprintf(&svg, `<rect width="%d" height="%d" fill="#%s"/><path fill="#%s" d="`, side, side, o.Background, o.Foreground)
	path := svg.AvailableBuffer()
	for y, row := range modules {
		for _, r := range runs(row) {
			path = append(path, 'M')
			path = strconv.AppendInt(path, int64(o.Margin+r.start), 10)
			path = append(path, ' ')
			path = strconv.AppendInt(path, int64(o.Margin+y), 10)
			path = append(path, 'h')
			path = strconv.AppendInt(path, int64(r.length), 10)
			path = append(path, "v1h-"...)
			path = strconv.AppendInt(path, int64(r.length), 10)
			path = append(path, 'z')
		}
	}
	svg.Write(path)
	svg.WriteString(`"/></svg>`)
	return svg.Bytes(), nil
}

// PNG returns a square image of exactly o.Size pixels. The modules are as large as fits, and centred; what is left at
// the edges is background. The errors are ErrOptions, ErrText and ErrSize.
func PNG(text string, o Options) ([]byte, error) {
	modules, err := encode(text, o)
	if err != nil {
		return nil, err
	}
	scale := o.Size / (len(modules) + 2*o.Margin)
	if scale == 0 {
		return nil, ErrSize
	}
	offset := (o.Size - scale*len(modules)) / 2
	canvas := image.NewPaletted(image.Rect(0, 0, o.Size, o.Size), color.Palette{opaque(o.Background), opaque(o.Foreground)})
	for y, row := range modules {
		first := canvas.Pix[(offset+y*scale)*canvas.Stride:][:canvas.Stride]
		for _, r := range runs(row) {
			for x := offset + r.start*scale; x < offset+(r.start+r.length)*scale; x++ {
				first[x] = 1
			}
		}
		for line := 1; line < scale; line++ {
			copy(canvas.Pix[(offset+y*scale+line)*canvas.Stride:], first)
		}
	}
	var file bytes.Buffer
	if err := png.Encode(&file, canvas); err != nil {
		return nil, fmt.Errorf("encode PNG: %w", err)
	}
	return file.Bytes(), nil
}

// encode returns the rows of the code without a margin; true is dark.
func encode(text string, o Options) ([][]bool, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	code, err := qrcode.New(text, recovery[o.Level])
	if err != nil {
		return nil, ErrText
	}
	code.DisableBorder = true
	return code.Bitmap(), nil
}

// recovery translates the standard's letters into the library's names.
var recovery = map[Level]qrcode.RecoveryLevel{
	Low:      qrcode.Low,
	Medium:   qrcode.Medium,
	Quartile: qrcode.High,
	High:     qrcode.Highest,
}

// run is a stretch of dark modules in a row.
type run struct{ start, length int }

func runs(row []bool) []run {
	var found []run
	for x, dark := range row {
		switch {
		case !dark:
		case x > 0 && row[x-1]:
			found[len(found)-1].length++
		default:
			found = append(found, run{start: x, length: 1})
		}
	}
	return found
}

func opaque(c Color) color.Color {
	return color.RGBA{R: c[0], G: c[1], B: c[2], A: 0xff}
}
