package chrome

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// Visit goes to a page, anew when it is the one that is shown.
func (p *Tab) Visit(address string) {
	p.t.Helper()
	if strings.Contains(address, "#") { // this may be a place in the page that is shown
		p.do(chromedp.Navigate("about:blank"))
	}
	p.do(chromedp.Navigate(address))
}

// Box is where something is in a page, in CSS pixels.
type Box struct{ X, Y, Width, Height float64 }

// Reach scrolls to the one element of a selector that is visible and returns where it is, once it is what a click there would hit.
func (p *Tab) Reach(selector string) (at Box) {
	p.t.Helper()
	expression := fmt.Sprintf(`(() => {
		const found = [...document.querySelectorAll(%s)].filter(e => e.checkVisibility())
		if (found.length !== 1) return {}
		found[0].scrollIntoView({block: "center", behavior: "instant"})
		const {x, y, width, height} = found[0].getBoundingClientRect()
		return found[0].contains(document.elementFromPoint(x + width / 2, y + height / 2)) ? {X: x, Y: y, Width: width, Height: height} : {}
	})()`, quoted(selector))
	p.Until(selector+" can be pressed", func() bool {
		at = Evaluate[Box](p, expression)
		return at.Width > 0
	})
	return at
}

// Press clicks an element. A tap would do the same, but a headless Chromium on a busy machine has let touches wait for good.
func (p *Tab) Press(selector string) {
	p.t.Helper()
	at := p.Reach(selector)
	p.do(chromedp.MouseClickXY(at.X+at.Width/2, at.Y+at.Height/2))
}

// Key presses a key of package kb.
func (p *Tab) Key(key string) {
	p.t.Helper()
	p.do(chromedp.KeyEvent(key))
}

// Write replaces what is in a field, as somebody does who types.
func (p *Tab) Write(selector, text string) {
	p.t.Helper()
	p.Press(selector)
	p.Holds(fmt.Sprintf(`document.activeElement === document.querySelector(%s)`, quoted(selector)))
	Evaluate[chromedp.Void](p, `void document.activeElement.select()`)
	if text == "" {
		p.Key(kb.Backspace)
		return
	}
	Call(p, input.InsertText, input.InsertTextParams{Text: text})
}

// Choose takes an option of a select, whose list no headless browser shows.
func (p *Tab) Choose(selector, value string) {
	p.t.Helper()
	p.Reach(selector)
	Evaluate[chromedp.Void](p, fmt.Sprintf(`void (document.querySelector(%s).value = %s)`, quoted(selector), quoted(value)))
}

// ReadClipboard returns what was copied.
func (p *Tab) ReadClipboard() string {
	p.t.Helper()
	p.allowClipboard()
	return Evaluate[string](p, `navigator.clipboard.readText()`)
}

// WriteClipboard copies a text, as from elsewhere.
func (p *Tab) WriteClipboard(text string) {
	p.t.Helper()
	p.allowClipboard()
	Evaluate[chromedp.Void](p, `navigator.clipboard.writeText(`+quoted(text)+`)`)
}

// allowClipboard comes no sooner than the test needs it: until then a page may do what a click allows it, as everywhere.
func (p *Tab) allowClipboard() {
	p.t.Helper()
	for _, name := range []string{"clipboard-read", "clipboard-write"} {
		if _, err := chromedp.CallBrowser(p.ctx, browser.SetPermission, browser.SetPermissionParams{
			Permission: &browser.PermissionDescriptor{Name: name}, Setting: browser.PermissionSettingGranted,
			Origin: p.options.Origins[0], BrowserContextID: chromedp.FromContext(p.ctx).BrowserContextID,
		}); err != nil {
			p.t.Fatal(err)
		}
	}
}

// quoted is a text as JavaScript has it.
func quoted(text string) string {
	encoded, err := json.Marshal(text)
	if err != nil {
		panic(err) // no string does that
	}
	return string(encoded)
}
