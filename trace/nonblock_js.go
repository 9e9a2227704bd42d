package trace

// NonBlock is no flag: a browser's files are no pipes.
const NonBlock = 0
