#ifndef JC_EXPRESSION_H
#define JC_EXPRESSION_H

struct jc_expression;

#endif
