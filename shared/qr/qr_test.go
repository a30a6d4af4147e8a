package qr_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/makiuchi-d/gozxing"
	"github.com/makiuchi-d/gozxing/qrcode"

	"deeplink/shared/qr"
)

var (
	levels = []qr.Level{qr.Low, qr.Medium, qr.Quartile, qr.High}
	white  = qr.Color{0xff, 0xff, 0xff}
)

// kinds are both images of a text, as a camera would see them.
var kinds = map[string]func(text string, o qr.Options) (image.Image, error){
	"PNG": func(text string, o qr.Options) (image.Image, error) {
		file, err := qr.PNG(text, o)
		if err != nil {
			return nil, err
		}
		return png.Decode(bytes.NewReader(file))
	},
	"SVG": func(text string, o qr.Options) (image.Image, error) {
		file, err := qr.SVG(text, o)
		if err != nil {
			return nil, err
		}
		return rasterize(file)
	},
}

// drawing is all that an SVG of ours may hold: a root, one rectangle, one path.
type drawing struct {
	XMLName   xml.Name `xml:"http://www.w3.org/2000/svg svg"`
	Width     int      `xml:"width,attr"`
	Height    int      `xml:"height,attr"`
	ViewBox   string   `xml:"viewBox,attr"`
	Rendering string   `xml:"shape-rendering,attr"`
	Rects     []struct {
		Width  int    `xml:"width,attr"`
		Height int    `xml:"height,attr"`
		Fill   string `xml:"fill,attr"`
	} `xml:"rect"`
	Paths []struct {
		D    string `xml:"d,attr"`
		Fill string `xml:"fill,attr"`
	} `xml:"path"`
	Others []struct{} `xml:",any"`
}

var (
	fill   = regexp.MustCompile(`^#([0-9a-f]{6})$`)
	square = regexp.MustCompile(`M(\d+) (\d+)h(\d+)v1h-(\d+)z`)
)

// rasterize draws an SVG with four pixels to a unit.
func rasterize(file []byte) (image.Image, error) {
	const scale = 4
	var svg drawing
	if err := xml.Unmarshal(file, &svg); err != nil {
		return nil, err
	}
	var side int
	if _, err := fmt.Sscanf(svg.ViewBox, "0 0 %d %d", &side, new(int)); err != nil {
		return nil, err
	}
	if len(svg.Rects) != 1 || len(svg.Paths) != 1 || len(svg.Others) != 0 || svg.Rendering != "crispEdges" ||
		svg.ViewBox != fmt.Sprintf("0 0 %d %d", side, side) || svg.Rects[0].Width != side || svg.Rects[0].Height != side {
		return nil, fmt.Errorf("not a rectangle and a path: %s", file)
	}
	background, err := parseFill(svg.Rects[0].Fill)
	if err != nil {
		return nil, err
	}
	foreground, err := parseFill(svg.Paths[0].Fill)
	if err != nil {
		return nil, err
	}
	canvas := image.NewPaletted(image.Rect(0, 0, side*scale, side*scale), color.Palette{background, foreground})
	d := svg.Paths[0].D
	for _, run := range square.FindAllStringSubmatch(d, -1) {
		var n [4]int
		for i := range n {
			if n[i], err = strconv.Atoi(run[i+1]); err != nil {
				return nil, err
			}
		}
		x, y, length := n[0], n[1], n[2]
		if length != n[3] || x+length > side || y >= side {
			return nil, fmt.Errorf("run %s in a square of %d", run[0], side)
		}
		for py := y * scale; py < (y+1)*scale; py++ {
			for px := x * scale; px < (x+length)*scale; px++ {
				if canvas.ColorIndexAt(px, py) != 0 {
					return nil, fmt.Errorf("run %s is drawn over another", run[0])
				}
				canvas.SetColorIndex(px, py, 1)
			}
		}
	}
	if rest := square.ReplaceAllString(d, ""); rest != "" {
		return nil, fmt.Errorf("path has %q", rest)
	}
	return canvas, nil
}

func parseFill(s string) (color.Color, error) {
	digits := fill.FindStringSubmatch(s)
	if digits == nil {
		return nil, fmt.Errorf("fill %q", s)
	}
	c, _ := qr.ParseColor(digits[1])
	return color.RGBA{c[0], c[1], c[2], 0xff}, nil
}

// read decodes an image, by searching for the code as in a photograph, or in the knowledge that the image contains nothing else.
func read(img image.Image, search gozxing.DecodeHintType) (text string, level qr.Level, err error) {
	bitmap, err := gozxing.NewBinaryBitmapFromImage(img)
	if err != nil {
		return "", "", err
	}
	result, err := qrcode.NewQRCodeReader().Decode(bitmap, map[gozxing.DecodeHintType]any{
		search:                               true,
		gozxing.DecodeHintType_CHARACTER_SET: "UTF-8",
	})
	if err != nil {
		return "", "", err
	}
	letter, _ := result.GetResultMetadata()[gozxing.ResultMetadataType_ERROR_CORRECTION_LEVEL].(string)
	return result.GetText(), qr.Level(letter), nil
}

// framed draws an image on a larger one of its background color, like a surrounding page.
func framed(img image.Image, background qr.Color) image.Image {
	size := img.Bounds().Dx()
	edge := size / 5
	page := image.NewRGBA(image.Rect(0, 0, size+2*edge, size+2*edge))
	surround := image.NewUniform(color.RGBA{background[0], background[1], background[2], 0xff})
	draw.Draw(page, page.Bounds(), surround, image.Point{}, draw.Src)
	draw.Draw(page, img.Bounds().Add(image.Pt(edge, edge)), img, image.Point{}, draw.Src)
	return page
}

func TestImagesDecodeToTheirText(t *testing.T) {
	t.Parallel()
	texts := []string{
		"https://l.example/abcd/x",
		"HTTPS://LINKS.EXAMPLE.COM/AB12/SUMMER",
		"https://links.example.com/ab12/" + strings.Repeat("Aa0_-", 12) + "?utm=é",
		strings.Repeat("1234567890", 15),
	}
	for kind, render := range kinds {
		for _, level := range levels {
			t.Run(kind+" "+string(level), func(t *testing.T) {
				t.Parallel()
				for _, text := range texts {
					for _, size := range []int{128, 301} {
						for _, margin := range []int{0, 5} {
							o := qr.Options{Size: size, Level: level, Margin: margin, Background: white}
							check(t, text, o, render, gozxing.DecodeHintType_TRY_HARDER)
						}
					}
				}
			})
		}
	}
}

func check(
	t *testing.T, text string, o qr.Options, render func(string, qr.Options) (image.Image, error), search gozxing.DecodeHintType,
) {
	t.Helper()
	image, err := render(text, o)
	if err != nil {
		t.Errorf("%q %+v: %v", text, o, err)
		return
	}
	if got, level, err := read(framed(image, o.Background), search); err != nil || got != text || level != o.Level {
		t.Errorf("%+v: got %q, level %s, %v, expected %q", o, got, level, err, text)
	}
}

// The reader does not find every large code in a photograph, so here it is told where to look.
func TestImagesOfEveryLengthDecode(t *testing.T) {
	t.Parallel()
	for kind, render := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			o := qr.Defaults()
			o.Size = 300
			for length := 1; length <= 1000; length += 83 {
				o.Level = levels[length%len(levels)]
				check(t, strings.Repeat("aB3-", 250)[:length], o, render, gozxing.DecodeHintType_PURE_BARCODE)
			}
		})
	}
}

func TestImagesHaveTheColorsOfTheOptions(t *testing.T) {
	t.Parallel()
	o := qr.Defaults()
	o.Size = 200
	o.Foreground, o.Background = qr.Color{0x12, 0x34, 0x56}, qr.Color{0xfe, 0xdc, 0xba}
	for kind, render := range kinds {
		check(t, "https://l.example/abcd/x", o, render, gozxing.DecodeHintType_TRY_HARDER)
		image, err := render("https://l.example/abcd/x", o)
		if err != nil {
			t.Fatal(err)
		}
		seen := make(map[color.Color]bool)
		for y := range image.Bounds().Dy() {
			for x := range image.Bounds().Dx() {
				seen[image.At(x, y)] = true
			}
		}
		if len(seen) != 2 || !seen[color.RGBA{0x12, 0x34, 0x56, 0xff}] || !seen[color.RGBA{0xfe, 0xdc, 0xba, 0xff}] {
			t.Errorf("%s: colors %v", kind, seen)
		}
	}
}

func TestPNGHasItsSizeAndEqualModulesInTheMiddle(t *testing.T) {
	t.Parallel()
	const text, modules = "https://l.example/abcd/x", 25 // version 2
	for _, size := range []int{qr.MinSize, 65, 99, 260} {
		for _, margin := range []int{0, 3, qr.MaxMargin} {
			o := qr.Defaults()
			o.Size, o.Margin = size, margin
			img, err := kinds["PNG"](text, o)
			if err != nil {
				t.Fatalf("%+v: %v", o, err)
			}
			if img.Bounds() != image.Rect(0, 0, size, size) {
				t.Errorf("%+v: bounds %s", o, img.Bounds())
			}
			scale := size / (modules + 2*margin)
			left := (size - scale*modules) / 2
			for y := range size {
				for x := range size {
					inside := image.Pt(x, y).In(image.Rect(left, left, left+scale*modules, left+scale*modules))
					dark := isDark(img.At(x, y))
					if !inside && dark {
						t.Fatalf("%+v: pixel %d,%d outside of the code is dark", o, x, y)
					}
					corner := img.At(x-(x-left)%scale, y-(y-left)%scale)
					if inside && dark != isDark(corner) {
						t.Fatalf("%+v: pixel %d,%d differs from the rest of its module", o, x, y)
					}
				}
			}
			// The corner of the finder pattern.
			if !isDark(img.At(left, left)) {
				t.Errorf("%+v: the code does not begin at %d", o, left)
			}
		}
	}
}

func isDark(c color.Color) bool {
	red, _, _, _ := c.RGBA()
	return red == 0
}

func TestSVGCountsInModulesAndShowsInPixels(t *testing.T) {
	t.Parallel()
	o := qr.Defaults()
	o.Size, o.Margin = 300, 2
	file, err := qr.SVG("https://l.example/abcd/x", o)
	if err != nil {
		t.Fatal(err)
	}
	const expected = `<svg xmlns="http://www.w3.org/2000/svg" width="300" height="300" viewBox="0 0 29 29" shape-rendering="crispEdges">` +
		`<rect width="29" height="29" fill="#ffffff"/><path fill="#000000" d="M2 2h7v1h-7z`
	if !strings.HasPrefix(string(file), expected) {
		t.Errorf("got  %.240s\nexpected %s", file, expected)
	}
}

func TestInvalidTextOrOptionsReturnAnError(t *testing.T) {
	t.Parallel()
	changed := func(change func(o *qr.Options)) qr.Options {
		o := qr.Defaults()
		change(&o)
		return o
	}
	for name, test := range map[string]struct {
		text     string
		options  qr.Options
		expected error
	}{
		"empty text":        {"", qr.Defaults(), qr.ErrText},
		"too long a text":   {strings.Repeat("x", 3000), qr.Defaults(), qr.ErrText},
		"too long for H":    {strings.Repeat("x", 1300), changed(func(o *qr.Options) { o.Size, o.Level = 2048, qr.High }), qr.ErrText},
		"no pixel a module": {strings.Repeat("x", 300), changed(func(o *qr.Options) { o.Size = 64 }), qr.ErrSize},
		"because of margin": {strings.Repeat("x", 50), changed(func(o *qr.Options) { o.Size, o.Margin = 64, 16 }), qr.ErrSize},
		"zero options":      {"x", qr.Options{}, qr.ErrOptions},
		"small":             {"x", changed(func(o *qr.Options) { o.Size = 63 }), qr.ErrOptions},
		"large":             {"x", changed(func(o *qr.Options) { o.Size = 2049 }), qr.ErrOptions},
		"negative margin":   {"x", changed(func(o *qr.Options) { o.Margin = -1 }), qr.ErrOptions},
		"wide margin":       {"x", changed(func(o *qr.Options) { o.Margin = 17 }), qr.ErrOptions},
		"level":             {"x", changed(func(o *qr.Options) { o.Level = "m" }), qr.ErrOptions},
	} {
		for kind, render := range kinds {
			expected := test.expected
			if kind == "SVG" && expected == qr.ErrSize {
				expected = nil // its modules need no whole pixels
			}
			if _, err := render(test.text, test.options); !errors.Is(err, expected) {
				t.Errorf("%s: %s: got %v, expected %v", name, kind, err, expected)
			}
		}
	}
}

func TestParseReadsLevelAndColor(t *testing.T) {
	t.Parallel()
	for s, expected := range map[string]bool{"L": true, "M": true, "Q": true, "H": true, "": false, "l": false, "LM": false} {
		if level, ok := qr.ParseLevel(s); ok != expected || string(level) != s {
			t.Errorf("level %q: got %q, %v, expected %v", s, level, ok, expected)
		}
	}
	for s, expected := range map[string]qr.Color{"000000": {}, "FFffFf": {255, 255, 255}, "1a2B3c": {0x1a, 0x2b, 0x3c}} {
		if c, ok := qr.ParseColor(s); !ok || c != expected || c.String() != strings.ToLower(s) {
			t.Errorf("color %q: got %v, %v, expected %v", s, c, ok, expected)
		}
	}
	for _, s := range []string{"", "fff", "#ffffff", "fffffff", "ggffff", "ff ff f", "éééé"} {
		if c, ok := qr.ParseColor(s); ok {
			t.Errorf("color %q: got %v", s, c)
		}
	}
}

func FuzzSVGAndPNGAgree(f *testing.F) {
	f.Add("https://l.example/abcd/x", 512, 4, byte(1))
	f.Add("\xff\x00", 64, 0, byte(3))
	f.Fuzz(func(t *testing.T, text string, size, margin int, level byte) {
		o := qr.Options{Size: size, Level: levels[int(level)%len(levels)], Margin: margin, Background: white}
		svg, svgErr := qr.SVG(text, o)
		file, pngErr := qr.PNG(text, o)
		if !errors.Is(svgErr, pngErr) && (svgErr == nil || svgErr.Error() != pngErr.Error()) {
			t.Fatalf("%q %+v: SVG %v, PNG %v", text, o, svgErr, pngErr)
		}
		if svgErr != nil {
			return
		}
		if _, err := rasterize(svg); err != nil {
			t.Fatalf("%q %+v: %v", text, o, err)
		}
		if img, err := png.DecodeConfig(bytes.NewReader(file)); err != nil || img.Width != size || img.Height != size {
			t.Fatalf("%q %+v: %+v, %v", text, o, img, err)
		}
	})
}

func BenchmarkSVG(b *testing.B) {
	for b.Loop() {
		if _, err := qr.SVG("https://links.example.com/ab12/kkkkkkkk", qr.Defaults()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPNG(b *testing.B) {
	for b.Loop() {
		if _, err := qr.PNG("https://links.example.com/ab12/kkkkkkkk", qr.Defaults()); err != nil {
			b.Fatal(err)
		}
	}
}
