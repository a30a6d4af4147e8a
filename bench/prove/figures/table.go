package figures

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// WriteHeader writes the header of a table: the first column is text, the others are numbers.
func WriteHeader(out io.Writer, names ...string) {
	fmt.Fprintln(out, "\n| "+strings.Join(names, " | ")+" |\n|---|"+strings.Repeat("--:|", len(names)-1))
}

// WriteRow writes a row of a table.
func WriteRow(out io.Writer, cells ...any) {
	texts := make([]string, len(cells))
	for i, cell := range cells {
		switch cell := cell.(type) {
		case time.Duration:
			texts[i] = fmt.Sprintf("%.2f", InMilliseconds(cell))
		case float64:
			texts[i] = fmt.Sprintf("%.2f", cell)
		default:
			texts[i] = fmt.Sprint(cell)
		}
	}
	fmt.Fprintln(out, "| "+strings.Join(texts, " | ")+" |")
}
