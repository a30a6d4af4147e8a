package main

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"testing"

	"deeplink/shared/settings"
	"deeplink/shared/testbrowser"
	"deeplink/shared/testdb"
)

// TestPagesInChromium shows the pages to people: a real browser, a real edge, a real PostgreSQL. Only the phones are Chromium in
// disguise, and nothing but the edge answers: whoever else is asked is noted. One visitor comes after another.
func TestPagesInChromium(t *testing.T) {
	t.Parallel()
	c := startChromium(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *chromium)
	}{
		{"the button copies a token that matches once", testCopiedToken},
		{"nothing is copied unasked", testNothingCopied},
		{"buttons of iOS", testIOSButtons},
		{"buttons of Android", testAndroidButtons},
		{"the store's referrer has a token that matches once", testReferredToken},
		{"the views of apps", testAppViews},
		{"desktop", testDesktop},
		{"without scripts", testWithoutScripts},
		{"by keyboard", testKeyboard},
		{"legible", testContrast},
		{"hostile links", testHostileLinks},
		{"hostile queries", testHostileQueries},
		{"screenshots", testScreenshots},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, c) })
	}
}

// chromium is a browser, and the edge whose pages it shows.
type chromium struct {
	browser  *testbrowser.Browser
	edge     *testEdge
	database *testdb.Database
	base     string // of short URLs, which really lead to the edge
}

func startChromium(t *testing.T) *chromium {
	t.Helper()
	c := &chromium{browser: testbrowser.New(t), database: testdb.New(t)}
	c.edge = startEdgeOn(t, *c.database, func(o *options) {
		believe(t, o)
		c.base = "http://" + string(o.Addr)
		o.LinkBaseURL = settings.LinkBase(c.base)
	})
	return c
}

// visitor is who looks at a page, and with what.
type visitor struct {
	userAgent     string
	hint          string // the platform in the client hints; empty: there are none
	language      string
	width, height int64
	touch         bool
	noScript      bool
}

var (
	onIPhone  = visitor{userAgent: realAgent("iPhone"), width: 390, height: 844, touch: true}
	onIPad    = visitor{userAgent: realAgent("Safari on macOS, or on an iPad"), hint: "iOS", width: 820, height: 1180, touch: true}
	onPixel   = visitor{userAgent: realAgent("Chrome on a Pixel"), hint: "Android", width: 412, height: 915, touch: true}
	onDesktop = visitor{userAgent: realAgent("Chrome on Windows"), hint: "Windows", width: 1280, height: 800}
	asBot     = visitor{userAgent: realAgent("Facebook's preview"), width: 1280, height: 800}

	inInstagram        = visitor{userAgent: realAgent("Instagram on an iPhone"), width: 390, height: 700, touch: true}
	inInstagramAndroid = visitor{userAgent: realAgent("Instagram on Android"), width: 412, height: 760, touch: true}
	inFirefox          = visitor{userAgent: realAgent("Firefox on Android"), width: 412, height: 915, touch: true}
)

func realAgent(name string) string {
	for _, real := range realAgents {
		if real.name == name {
			return real.userAgent
		}
	}
	panic("no agent is named " + name)
}

func (v visitor) withoutScripts() visitor   { v.noScript = true; return v }
func (v visitor) reading(in string) visitor { v.language = in; return v }

// pictures is the host of every picture that a link has.
const pictures = "pictures.example"

// picture is what it answers.
var picture = func() []byte {
	const width, height = 240, 126
	canvas := image.NewRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			canvas.Set(x, y, color.RGBA{uint8(200 - y/2), uint8(90 + x/3), uint8(120 + x/4 + y/4), 255})
		}
	}
	var file bytes.Buffer
	if err := png.Encode(&file, canvas); err != nil {
		panic(err)
	}
	return file.Bytes()
}()
