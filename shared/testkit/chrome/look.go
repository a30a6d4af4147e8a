package chrome

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// Prefer selects the color scheme "light" or "dark", and reduces motion.
func (p *Tab) Prefer(scheme string) {
	p.t.Helper()
	Call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
}

// Size sets the size of the screen in CSS pixels; with touch, it is a phone's.
func (p *Tab) Size(width, height int64, touch bool) {
	p.t.Helper()
	if touch {
		p.do(chromedp.EmulateViewport(width, height, chromedp.EmulateMobile, chromedp.EmulateTouch))
	} else {
		p.do(chromedp.EmulateViewport(width, height))
	}
}

// Text returns the visible text of the page.
func (p *Tab) Text() string {
	p.t.Helper()
	return Evaluate[string](p, `document.body?.innerText ?? ""`)
}

// Says waits until the page contains the text.
func (p *Tab) Says(words ...string) {
	p.t.Helper()
	for _, word := range words {
		p.Until("the page contains "+word, func() bool { return strings.Contains(p.Text(), word) })
	}
}

// SaysNot requires that the page does not contain the text now.
func (p *Tab) SaysNot(words ...string) {
	p.t.Helper()
	text := p.Text()
	for _, word := range words {
		if strings.Contains(text, word) {
			p.t.Errorf("the page contains %q:\n%s", word, text)
		}
	}
}

// Shoot saves a screenshot of the tab, for a person.
func (p *Tab) Shoot(file string) {
	p.t.Helper()
	quick := true
	shot := Call(p, page.CaptureScreenshot, page.CaptureScreenshotParams{OptimizeForSpeed: &quick})
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(file, shot.Data, 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// Faint returns the texts whose contrast with their background is below the minimum of WCAG 2.2 (1.4.3): 4.5, or 3 for large text. It omits
// text behind a dialog and disabled controls.
func (p *Tab) Faint() []string {
	p.t.Helper()
	return Evaluate[[]string](p, faint)
}

const faint = `
(() => {
	const rgba = (color) => {
		const context = new OffscreenCanvas(1, 1).getContext("2d")
		context.fillStyle = color
		context.fillRect(0, 0, 1, 1)
		return [...context.getImageData(0, 0, 1, 1).data]
	}
	const luminance = ([r, g, b]) => {
		const linear = (c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4
		return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b)
	}
	const behind = (e) => {
		for (; e; e = e.parentElement) {
			const color = rgba(getComputedStyle(e).backgroundColor)
			if (color[3] === 255) return color
		}
		return [255, 255, 255, 255]
	}
	const found = []
	for (const e of (document.querySelector("dialog[open]") ?? document.body).querySelectorAll("*")) {
		const text = [...e.childNodes].filter(n => n.nodeType === Node.TEXT_NODE).map(n => n.data.trim()).join("")
		if (!text || !e.checkVisibility() || e.closest("script,style,svg,option,:disabled")) continue
		const style = getComputedStyle(e), size = parseFloat(style.fontSize)
		const [a, b] = [luminance(rgba(style.color)), luminance(behind(e))].sort((a, b) => b - a)
		const ratio = (a + 0.05) / (b + 0.05)
		const least = size >= 24 || size >= 18.66 && style.fontWeight >= 700 ? 3 : 4.5
		if (ratio < least) found.push(text + ": " + ratio.toFixed(2))
	}
	return found
})()`
