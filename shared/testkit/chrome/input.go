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

// Visit navigates to a page, and reloads it if it is the current one.
func (p *Tab) Visit(address string) {
	p.t.Helper()
	if strings.Contains(address, "#") { // the URL may be an anchor in the current page
		p.do(chromedp.Navigate("about:blank"))
	}
	p.do(chromedp.Navigate(address))
}

// Box is the position and size of an element, in CSS pixels.
type Box struct{ X, Y, Width, Height float64 }

// Reach scrolls to the only visible element of a selector and returns its position, once a click there would hit it.
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

// Press clicks an element. A tap would be equivalent, but headless Chromium on a busy machine sometimes never delivers touches.
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

// Write replaces the content of a field by typing.
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

// Choose selects an option of a select element, whose list headless browsers do not show.
func (p *Tab) Choose(selector, value string) {
	p.t.Helper()
	p.Reach(selector)
	Evaluate[chromedp.Void](p, fmt.Sprintf(`void (document.querySelector(%s).value = %s)`, quoted(selector), quoted(value)))
}

// ReadClipboard returns the content of the clipboard.
func (p *Tab) ReadClipboard() string {
	p.t.Helper()
	p.allowClipboard()
	return Evaluate[string](p, `navigator.clipboard.readText()`)
}

// WriteClipboard sets the content of the clipboard, as another program would.
func (p *Tab) WriteClipboard(text string) {
	p.t.Helper()
	p.allowClipboard()
	Evaluate[chromedp.Void](p, `navigator.clipboard.writeText(`+quoted(text)+`)`)
}

// allowClipboard grants the permission only when the test needs it: until then the page has only the rights that a click gives it.
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

// quoted returns a text as a JavaScript literal.
func quoted(text string) string {
	encoded, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string is always valid JSON
	}
	return string(encoded)
}
