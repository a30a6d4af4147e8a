package compare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/HdrHistogram/hdrhistogram-go"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"deeplink/bench/result"
)

// PlotCommand draws results.
type PlotCommand struct {
	File string `arg:"" type:"existingfile" help:"Results, as --json writes them."`
	Out  string `short:"o" required:"" type:"path" help:"Picture to make; its name ends in .svg or .png."`
}

// Help implements kong's longer help.
func (c *PlotCommand) Help() string {
	return "Two pictures side by side: latency by percentile, all rounds of a series together, and answers a second round by round."
}

// Run implements the command.
func (c *PlotCommand) Run(context.Context) error {
	file, err := result.Read(c.File)
	if err != nil {
		return err
	}
	canvas, err := newPicture(filepath.Ext(c.Out))
	if err != nil {
		return err
	}
	if err := drawResults(draw.New(canvas), file); err != nil {
		return err
	}
	out, err := os.Create(c.Out)
	if err != nil {
		return err
	}
	_, err = canvas.WriteTo(out)
	return errors.Join(err, out.Close())
}

const pictureWidth, pictureHeight = 36 * vg.Centimeter, 14 * vg.Centimeter

// picture is something to draw on that can be written to a file.
type picture interface {
	vg.CanvasSizer
	io.WriterTo
}

func newPicture(extension string) (picture, error) {
	switch extension {
	case ".svg":
		return vgsvg.New(pictureWidth, pictureHeight), nil
	case ".png":
		return vgimg.PngCanvas{Canvas: vgimg.New(pictureWidth, pictureHeight)}, nil
	}
	return nil, fmt.Errorf("a picture is .svg or .png, not %q", extension)
}

func drawResults(canvas draw.Canvas, file *result.File) error {
	latencies, rates := newLatencyPlot(), newRatePlot()
	for i, series := range file.Series {
		if err := addLatencies(latencies, series, i); err != nil {
			return err
		}
		if err := addRates(rates, series, i); err != nil {
			return err
		}
	}
	latencies.Title.Text = fmt.Sprintf("%s, %d cores, %s", file.Machine.CPU, file.Machine.Cores, file.Began.Format("2 January 2006 15:04"))
	tiles := draw.Tiles{Cols: 2, Rows: 1, PadX: vg.Centimeter, PadTop: vg.Centimeter / 2, PadBottom: vg.Centimeter / 2, PadLeft: vg.Centimeter / 2, PadRight: vg.Centimeter}
	plots := [][]*plot.Plot{{latencies, rates}}
	for i, tile := range plot.Align(plots, tiles, canvas)[0] {
		plots[0][i].Draw(tile)
	}
	return nil
}

// seriesName is what a legend calls a series.
func seriesName(s result.Series) string { return s.Contender + ", " + s.Scenario }

func newLatencyPlot() *plot.Plot {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = "percentile", "latency in ms"
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker = plot.TickerFunc(percentileTicks)
	p.Y.Tick.Marker = plot.LogTicks{Prec: -1}
	p.Legend.Top, p.Legend.Left, p.Legend.XOffs, p.Legend.Padding = true, true, vg.Centimeter/2, vg.Millimeter
	p.Add(plotter.NewGrid())
	return p
}

// percentileTicks names places on the scale of 1/(1-p).
func percentileTicks(low, high float64) []plot.Tick {
	ticks := []plot.Tick{{Value: 1, Label: "0"}, {Value: 2, Label: "50"}, {Value: 10, Label: "90"}}
	for at, label := 100.0, "99"; at <= high*1.01; at *= 10 {
		ticks = append(ticks, plot.Tick{Value: at, Label: label})
		if label == "99" {
			label += "."
		}
		label += "9"
	}
	return ticks
}

// addLatencies draws the percentiles of all rounds, where they are known.
func addLatencies(p *plot.Plot, series result.Series, number int) error {
	all := result.NewHistogram()
	for _, round := range series.Rounds {
		h, err := round.Latencies.Histogram()
		if err != nil {
			return err
		}
		if h != nil {
			all.Merge(h)
		}
	}
	if all.TotalCount() == 0 {
		return nil
	}
	line, err := plotter.NewLine(percentilePoints(all))
	if err != nil {
		return err
	}
	line.Color, line.Dashes, line.Width = plotutil.Color(number), plotutil.Dashes(number), vg.Points(1.5)
	p.Add(line)
	p.Legend.Add(seriesName(series), line)
	return nil
}

func percentilePoints(h *hdrhistogram.Histogram) (points plotter.XYs) {
	most := float64(h.TotalCount())
	for _, bracket := range h.CumulativeDistributionWithTicks(20) {
		points = append(points, plotter.XY{
			X: math.Min(1/(1-bracket.Quantile/100), most), // the last one would be at infinity
			Y: math.Max(float64(bracket.ValueAt)/1e6, 0.001),
		})
	}
	return points
}

func newRatePlot() *plot.Plot {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = "round", "answers a second"
	p.X.Tick.Marker = plot.TickerFunc(wholeTicks)
	p.Legend.YOffs, p.Legend.Padding = vg.Centimeter/2, vg.Millimeter
	p.Add(plotter.NewGrid())
	return p
}

func wholeTicks(low, high float64) (ticks []plot.Tick) {
	step := math.Max(1, math.Ceil((high-low)/20))
	for at := math.Ceil(low); at <= high; at += step {
		ticks = append(ticks, plot.Tick{Value: at, Label: fmt.Sprint(int(at))})
	}
	return ticks
}

func addRates(p *plot.Plot, series result.Series, number int) error {
	points := make(plotter.XYs, len(series.Rounds))
	for i, round := range series.Rounds {
		points[i] = plotter.XY{X: float64(i + 1), Y: round.Rate()}
	}
	if len(points) == 0 {
		return nil
	}
	line, dots, err := plotter.NewLinePoints(points)
	if err != nil {
		return err
	}
	line.Color, line.Dashes = plotutil.Color(number), plotutil.Dashes(number)
	dots.Color, dots.Shape = plotutil.Color(number), plotutil.Shape(number)
	p.Add(line, dots)
	p.Y.Min = 0 // adding made it the least rate
	p.Legend.Add(seriesName(series), line, dots)
	return nil
}
