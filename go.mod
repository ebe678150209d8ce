module lightpath

go 1.26.0
