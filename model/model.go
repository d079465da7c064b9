// Package model has what several rooms pass on, each declared once. It has structs only.
package model
