package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deeplink/shared/testkit/chrome"
)

// screenshots is the directory for screenshots of the pages. It is not under version control.
var screenshots = filepath.Join("..", ".run", "screenshots")

// look is a page and its visitor.
type look struct {
	name, path string
	v          visitor
	status     int
}

// looks returns all pages, with many and with few values.
func (c *chromium) looks(t *testing.T, orgKey string) []look {
	t.Helper()
	link := c.organization(t, orgKey)
	rich := map[string]any{
		"og_title": "The spring collection", "og_image_url": "https://" + pictures + "/a.png", "path": "/sale",
		"og_description": "Light jackets, linen shirts and all that the first warm days of the year ask for.",
	}
	with := func(name string, value any) map[string]any {
		columns := map[string]any{name: value}
		for name, value := range rich {
			if columns[name] == nil {
				columns[name] = value
			}
		}
		return columns
	}
	page, _ := link("Spring", rich)
	web, _ := link("Web", with("fallback_url", "https://shop.example.com/spring"))
	bare, _ := link("k7m2qp9x", nil)
	long, _ := link("Long", map[string]any{
		"og_title": strings.Repeat("Donaudampfschifffahrt", 9), "og_description": strings.Repeat("many words ", 60), "path": "/sale",
	})
	arabic, _ := link("Arabic", map[string]any{
		"og_title": "مجموعة الربيع 2026", "og_description": "سترات خفيفة وقمصان كتان.", "path": "/sale",
	})
	off, _ := link("Off", map[string]any{"is_active": false})
	past, _ := link("Past", map[string]any{"expiry": time.Now().Add(-time.Hour)})
	missing := "/" + orgKey + "/missing"
	return []look{
		{"ios", web, onIPhone, 200},
		{"ios-bare", bare, onIPhone, 200},
		{"ios-long", long, onIPhone, 200},
		{"ios-instagram", web, inInstagram, 200},
		{"ios-arabic", arabic, onIPhone.reading("ar"), 200},
		{"ios-german", web, onIPhone.reading("de"), 200},
		{"android", web, onPixel, 200},
		{"android-bare", bare, onPixel, 200},
		{"android-instagram", page, inInstagramAndroid, 200},
		{"android-japanese", web, onPixel.reading("ja"), 200},
		{"landing", page, onDesktop, 200},
		{"landing-bare", bare, onDesktop, 200},
		{"landing-long", long, onDesktop, 200},
		{"landing-arabic", arabic, onDesktop.reading("ar"), 200},
		{"preview", page, asBot, 200},
		{"missing", missing, onDesktop, 404},
		{"inactive", off, onDesktop, 410},
		{"expired", past, onIPhone, 410},
	}
}

func testScreenshots(t *testing.T, c *chromium) {
	looks := c.looks(t, "look")
	p := c.open(t, looks[0].v)
	for _, l := range looks {
		p.become(l.v)
		p.visit(l.path)
		for _, width := range []int64{360, 768, 1280} {
			const least = 800
			p.Size(width, least, l.v.touch)
			if wide := chrome.Evaluate[int64](p.Tab, `document.documentElement.scrollWidth`); wide > width {
				t.Errorf("%s is %d pixels wide, the screen %d", l.name, wide, width)
			}
			if long := chrome.Evaluate[int64](p.Tab, `document.documentElement.scrollHeight`); long > least {
				p.Size(width, long, l.v.touch)
			}
			for _, scheme := range []string{"light", "dark"} {
				p.Prefer(scheme)
				p.Shoot(filepath.Join(screenshots, fmt.Sprintf("%s-%d-%s.png", l.name, width, scheme)))
			}
		}
		p.checkNoFaultsBut(l)
	}
}

// checkNoFaultsBut allows the console message about the status of an error page.
func (p *tab) checkNoFaultsBut(l look) {
	p.t.Helper()
	for _, fault := range p.TakeFaults() {
		if l.status == 200 || !strings.Contains(fault, fmt.Sprintf("status of %d", l.status)) {
			p.t.Errorf("%s: %s", l.name, fault)
		}
	}
}

func testContrast(t *testing.T, c *chromium) {
	looks := c.looks(t, "wcag")
	p := c.open(t, looks[0].v)
	for _, l := range looks {
		p.become(l.v)
		p.visit(l.path)
		grounds := make(map[string]bool)
		for _, scheme := range []string{"light", "dark"} {
			p.Prefer(scheme)
			if found := p.Faint(); len(found) > 0 {
				t.Errorf("%s, %s: %q", l.name, scheme, found)
			}
			grounds[chrome.Evaluate[string](p.Tab, `getComputedStyle(document.body).backgroundColor`)] = true
		}
		if len(grounds) != 2 {
			t.Errorf("%s looks the same in the dark: %v", l.name, grounds)
		}
		p.checkNoFaultsBut(l)
	}
}
