package main

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"testing"

	"deeplink/shared/settings"
	"deeplink/shared/testkit"
	"deeplink/shared/testkit/chrome"
)

// TestPagesInChromium shows the pages in a real browser, with a real edge and a real PostgreSQL. Phones are Chromium with another
// User-Agent. Only the edge responds; requests to any other host are recorded. One visitor follows another.
func TestPagesInChromium(t *testing.T) {
	testkit.Prove(t)
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

// chromium is a browser, with the edge whose pages it shows.
type chromium struct {
	browser  *chrome.Browser
	edge     *testEdge
	database *testkit.Database
	base     string // of short URLs, which really lead to the edge
}

func startChromium(t *testing.T) *chromium {
	t.Helper()
	c := &chromium{browser: chrome.New(t), database: testkit.NewDatabase(t)}
	c.edge = startEdgeOn(t, *c.database, func(o *options) {
		believe(t, o)
		c.base = "http://" + string(o.Addr)
		o.LinkBaseURL = settings.LinkBase(c.base)
	})
	return c
}

// visitor describes the browser of a visitor.
type visitor struct {
	userAgent     string
	hint          string // the platform in the client hints; empty: there are none
	language      string
	width, height int64
	touch         bool
	noScript      bool
}

var (
	onIPhone  = visitor{userAgent: "Mozilla/5.0 (iPhone; CPU iPhone OS 13_4 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/13.1 Mobile/15E148 Safari/604.1", width: 390, height: 844, touch: true}
	onIPad    = visitor{userAgent: "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_1) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/13.0.3 Safari/605.1.15", hint: "iOS", width: 820, height: 1180, touch: true}
	onPixel   = visitor{userAgent: "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/152.0.0.0 Mobile Safari/537.36", hint: "Android", width: 412, height: 915, touch: true}
	onDesktop = visitor{userAgent: "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/152.0.0.0 Safari/537.36", hint: "Windows", width: 1280, height: 800}
	asBot     = visitor{userAgent: "facebookexternalhit/1.1", width: 1280, height: 800}

	inInstagram        = visitor{userAgent: "Mozilla/5.0 (iPhone; CPU iPhone OS 13_3 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148 Instagram 123.1.0.26.115 (iPhone11,8; iOS 13_3; en_US; en-US; scale=2.00; 828x1792; 190542906)", width: 390, height: 700, touch: true}
	inInstagramAndroid = visitor{userAgent: "Mozilla/5.0 (Linux; Android 11; Pixel 2 Build/RP1A.201005.004.A1; wv) AppleWebKit/537.36 (KHTML, like Gecko) Version/4.0 Chrome/91.0.4472.120 Mobile Safari/537.36 Instagram 194.0.0.36.172 Android (30/11; 420dpi; 1080x1878; Google/google; Pixel 2; walleye; walleye; en_US; 301484483)", width: 412, height: 760, touch: true}
	inFirefox          = visitor{userAgent: "Mozilla/5.0 (Android 14; Mobile; rv:129.0) Gecko/129.0 Firefox/129.0", width: 412, height: 915, touch: true}
)

func (v visitor) withoutScripts() visitor   { v.noScript = true; return v }
func (v visitor) reading(in string) visitor { v.language = in; return v }

// pictures is the host of every image of a link.
const pictures = "pictures.example"

// picture is the image that this host serves.
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
