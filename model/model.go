// Package model has what several rooms pass on, each declared once: structs, and no rules.
package model
