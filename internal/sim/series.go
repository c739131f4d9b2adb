package sim

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
)

// Record is one queue in one cycle. Amounts are GPUs; Usage is the part of the cluster that the queue used lately.
type Record struct {
	Time       int     `json:"time"` // the cycle
	QueueID    string  `json:"queueID"`
	Allocation float64 `json:"allocation"`
	FairShare  float64 `json:"fairShare"`
	Usage      float64 `json:"usage"`
}

// each calls f for every record: by cycle, then by queue name.
func (s *Series) each(f func(Record) error) error {
	for k := range s.Cycles() {
		for i := range s.Queues {
			q := &s.Queues[i]
			r := Record{
				Time: k, QueueID: q.Name, Allocation: float64(q.Allocation[k]) / 1000, FairShare: float64(q.FairShare[k]) / 1000, Usage: float64(q.Usage[k]) / 1e6,
			}
			if err := f(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// WriteCSV writes KAI's columns: Time (the cycle), QueueID, Allocation and FairShare in GPUs with six decimals.
func (s *Series) WriteCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	if err := out.Write([]string{"Time", "QueueID", "Allocation", "FairShare"}); err != nil {
		return err
	}
	number := func(v float64) string { return strconv.FormatFloat(v, 'f', 6, 64) }
	err := s.each(func(r Record) error {
		return out.Write([]string{strconv.Itoa(r.Time), r.QueueID, number(r.Allocation), number(r.FairShare)})
	})
	if err != nil {
		return err
	}
	out.Flush()
	return out.Error()
}

// WriteJSON writes an array of Records, one per line.
func (s *Series) WriteJSON(w io.Writer) error {
	out := bufio.NewWriter(w)
	before := "[\n"
	err := s.each(func(r Record) error {
		text, err := json.Marshal(&r)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(out, "%s%s", before, text)
		before = ",\n"
		return err
	})
	if err != nil {
		return err
	}
	if before == "[\n" {
		before = "["
	} else {
		before = "\n"
	}
	fmt.Fprint(out, before, "]\n") // the buffer keeps its error for Flush
	return out.Flush()
}
